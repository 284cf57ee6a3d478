"""A stack under test: `assay up` as a process of its own, spoken to from outside."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

from assay.wallet import checksum_address

REPO = Path(__file__).resolve().parents[2]
ASSAY = Path(sys.executable).with_name("assay")
SUBMITTED = "wallet.event.submitted.v1"
ACCEPTED = "wallet.event.accepted.v1"
FEATURES = "wallet.features.extracted.v1"
REQUESTED = "llm.generation.requested.v1"
RETRIED = "llm.generation.retried.v1"
ANSWERED = "llm.generation.answered.v1"
REJECTED = "llm.generation.rejected.v1"
VALIDATED = "wallet.score.validated.v1"
SIGNED = "wallet.score.signed.v1"
RECORDS = "evidence.record.submitted.v1"
SUBMITTED_DLQ = "wallet.event.submitted.v1.ingest.dlq"

# Short patience everywhere, so that trouble shows within seconds.
QUICK = {
    "ASSAY_KAFKA__SESSION_TIMEOUT_MS": "6000",
    "ASSAY_SCORER__DEADLINE_S": "3",
    "ASSAY_SCORER__TRANSPORT_ATTEMPTS": "2",
    "ASSAY_SCORER__PATIENCE_S": "2",
    "ASSAY_SCORER__FAILURES_TO_OPEN": "2",
    "ASSAY_SCORER__SUSPICIONS_TO_OPEN": "1000",
    "ASSAY_SCORER__PROBE_INITIAL_S": "0.2",
    "ASSAY_SCORER__PROBE_MAX_S": "0.4",
    "ASSAY_INGEST__AGGREGATOR_DEADLINE_S": "2",
    "ASSAY_INGEST__AGGREGATOR_READ_S": "0.5",
    "ASSAY_INGEST__AGGREGATOR_ATTEMPTS": "2",
    "ASSAY_KAFKA__RETRY_DELAYS_S": "[0.2]",
}
T = TypeVar("T")


def new_address() -> str:
    """An address nobody has used before, as its EIP-55 checksum spells it."""
    return checksum_address("0x" + secrets.token_hex(20))


async def eventually(
    look: Callable[[], Awaitable[T]], good: Callable[[T], bool], seconds: float = 30
) -> T:
    """What `look` brings once it is good; what it brought last, when that never happens."""
    end = time.monotonic() + seconds
    while True:
        found = await look()
        if good(found) or time.monotonic() > end:
            return found
        await asyncio.sleep(0.1)


def command(
    *arguments: str | Path, stdin: str | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `assay` to its end."""
    return subprocess.run(
        [str(ASSAY), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=REPO,
        env={**os.environ, **(env or {})},
    )


class StackProcess:
    """One `assay up --json` with its data in `folder`/data; `addresses` is the line it printed."""

    def __init__(
        self, folder: Path, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self._said = folder / "up.err"
        self.data = folder / "data"
        self.addresses: dict[str, Any] = {}
        with self._said.open("ab") as errors:
            self.process = subprocess.Popen(
                [str(ASSAY), "up", "--json", "--data", str(self.data), *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=REPO,
                env={**os.environ, **environment},
            )

    def ready(self) -> StackProcess:
        """Wait for the line; a stack that ends instead fails the test with what it said."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(30)
            raise AssertionError(f"assay up ended: {self.said}")
        self.addresses = json.loads(line)
        return self

    @property
    def said(self) -> str:
        return self._said.read_text(encoding="utf-8")

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """End it as Ctrl-C does; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(60)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if self.process.stdout:
                self.process.stdout.close()

    @property
    def bootstrap(self) -> str:
        return str(self.addresses["bootstrap"])

    @property
    def public_key(self) -> str:
        return str(self.addresses["public_key"])

    def pid(self, service: str) -> int:
        """Process id of one of its services."""
        record = json.loads((self.data / "run" / f"{service}.pid").read_text(encoding="utf-8"))
        return int(record["pid"])

    def log(self, service: str) -> list[dict[str, Any]]:
        """The JSON lines a service has logged."""
        text = (self.data / "run" / f"{service}.log").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def post(self, body: Any, **kwargs: Any) -> httpx.Response:
        """`POST /score` with a JSON body, or with bytes as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        url = self.addresses["api"] + "/score"
        return httpx.post(url, content=content, timeout=60, **kwargs)

    def get(self, path: str, **kwargs: Any) -> httpx.Response:
        return httpx.get(self.addresses["api"] + path, timeout=60, **kwargs)

    def page(self, service: str, path: str, **kwargs: Any) -> httpx.Response:
        return httpx.get(self.addresses["services"][service] + path, timeout=30, **kwargs)

    def evidence(self, **parameters: Any) -> list[dict[str, Any]]:
        """All items of a query, over all its pages."""
        items: list[dict[str, Any]] = []
        after = 0
        while True:
            answer = self.page("evidence", "/evidence", params={**parameters, "after": after})
            answer.raise_for_status()
            body = answer.json()
            items += body["items"]
            if body["next"] is None:
                return items
            after = body["next"]

    async def evidence_with(
        self, *types: str, seconds: float = 20, **parameters: Any
    ) -> list[dict[str, Any]]:
        """The items of a query, once there is one of each type."""

        async def look() -> list[dict[str, Any]]:
            return self.evidence(**parameters)

        return await eventually(
            look, lambda items: set(types) <= {item["type"] for item in items}, seconds
        )

    async def records(self, topic: str) -> list[ConsumerRecord]:
        """Every record a topic holds now."""
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
            max_partition_fetch_bytes=8_388_608,
        )
        await consumer.start()
        try:
            while not (tps := sorted(consumer.assignment())):
                await asyncio.sleep(0.01)
            # A plain seek: a reset to the beginning may lose against the first one under way.
            for tp, low in (await consumer.beginning_offsets(tps)).items():
                consumer.seek(tp, low)
            ends = await consumer.end_offsets(tps)
            found: list[ConsumerRecord] = []
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += records
            return found
        finally:
            await consumer.stop()

    async def of_wallet(
        self, topic: str, address: str, at_least: int = 1, seconds: float = 30
    ) -> list[ConsumerRecord]:
        """A wallet's records on a topic, once there are as many."""

        async def look() -> list[ConsumerRecord]:
            key = address.lower().encode()
            return [record for record in await self.records(topic) if record.key == key]

        found = await eventually(look, lambda records: len(records) >= at_least, seconds)
        assert len(found) >= at_least, f"{len(found)} records of {address} on {topic}"
        return found

    @asynccontextmanager
    async def producer(self) -> Any:
        """A plain producer, as a publisher in any language would have one."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            max_request_size=8_388_608,
            compression_type="zstd",
            enable_idempotence=True,
        )
        await producer.start()
        try:
            yield producer
        finally:
            await producer.stop()

    async def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        topic: str = SUBMITTED,
    ) -> None:
        async with self.producer() as producer:
            await producer.send_and_wait(topic, value=value, key=key, headers=list(headers))


def flat(signed: ConsumerRecord) -> dict[str, Any]:
    """A signed record as `assay tail` prints it."""
    event = json.loads(signed.value)
    first = event["attestations"][0]
    return {
        "request_id": event["meta"]["request_id"],
        "score": event["score"],
        "wallet_address": event["wallet_address"],
        "timestamp_ms": event["timestamp_ms"],
        "signature": first["signature"],
        "public_key": first["public_key"],
        "metadata": event["metadata"],
    }


def headers_of(record: ConsumerRecord) -> dict[str, str]:
    return {name: value.decode("utf-8", "replace") for name, value in record.headers}
