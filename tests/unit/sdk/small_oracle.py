"""A stand-in for the oracle on the other side of a broker: each submission gets an outcome."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

from assay.envelope import emit
from assay.events import Attestation, GenerationRejected, Meta, WalletScoreSigned
from assay.identity import identify
from assay.topics import dead_letter_name

SUBMITTED = "wallet.event.submitted.v1"
ATTESTATION = Attestation(
    scheme="sui", network="dev", kid="k", public_key="02" + "0" * 64, signature="ab" * 64
)
REJECTED_ENDING, DEAD_ENDING, SILENT_ENDING, UNSEALED_ENDING = "e1", "d1", "00", "fe"


def signed(request_id: str, address: str, score: int = 500) -> WalletScoreSigned:
    """A signed event in form; the signature is none."""
    return WalletScoreSigned(
        meta=Meta(request_id=request_id, tenant_id="default", wallet=address.lower()),
        score=score,
        wallet_address=address,
        timestamp_ms=1_795_248_000_000,
        attestations=[ATTESTATION],
        metadata={"fallback": None},
    )


def rejected(request_id: str, address: str, **changes: Any) -> GenerationRejected:
    fields: dict[str, Any] = {
        "terminal": True,
        "unit_id": request_id,
        "failure_stage": "validation",
        "input": {},
        "raw_response": "{}",
        "errors": [{"path": "$.score", "rule": "cross_check", "message": "does not follow"}],
        "retry_count": 2,
        "reason": "answers_rejected",
        "ends_as": "withheld",
        **changes,
    }
    meta = Meta(request_id=request_id, tenant_id="default", wallet=address.lower())
    return GenerationRejected(meta=meta, **fields)


class SmallOracle:
    """Runs in a thread of its own; `seen` counts the submissions read. While it is `silent`, it
    answers none of them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.seen: list[str] = []
        self.silent = False

    def __enter__(self) -> SmallOracle:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)

    async def _run(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="latest", fetch_max_wait_ms=20
        )
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap)
        await consumer.start()
        await producer.start()
        try:
            consumer.subscribe([SUBMITTED])
            while not consumer.assignment():
                await asyncio.sleep(0.01)
            await consumer.seek_to_end()
            self._ready.set()
            while not self._stop.is_set():
                for records in (await consumer.getmany(timeout_ms=20)).values():
                    for record in records:
                        await self._answer(producer, record)
        finally:
            await consumer.stop()
            await producer.stop()

    async def _answer(self, producer: AIOKafkaProducer, record: ConsumerRecord) -> None:
        identity = identify(
            record.topic, record.partition, record.offset, record.headers, record.value,
            tenant="default",
        )  # fmt: skip
        self.seen.append(identity.request_id)
        address = json.loads(record.value)["address"]
        if self.silent or address.endswith(SILENT_ENDING):
            return
        if address.endswith(DEAD_ENDING):
            await producer.send_and_wait(
                dead_letter_name(SUBMITTED, "ingest"),
                value=record.value,
                headers=[
                    *record.headers,
                    ("assay.request.id", identity.request_id.encode()),
                    ("assay.error.code", b"aggregator_timeout"),
                    ("__connect.errors.exception.message", b"the aggregator said nothing"),
                ],
            )
            return
        unsealed = address.endswith(UNSEALED_ENDING)
        make = rejected if unsealed or address.endswith(REJECTED_ENDING) else signed
        event = make(identity.request_id, address)
        if unsealed:
            meta = event.meta.model_copy(update={"unsealed": True})
            event = event.model_copy(update={"meta": meta})
        message = emit(event, topic=event.type, source="/oracle", parent_id=identity.event_id)
        await producer.send_and_wait(
            message.topic, value=message.value, key=message.key, headers=list(message.headers)
        )
