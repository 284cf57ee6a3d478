"""Publish wallet events and follow what becomes of them, over Kafka alone (SPEC X.1)."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from assay.envelope import text_headers
from assay.events import GenerationRejected, WalletEventSubmitted, WalletScoreSigned
from assay.ids import request_id
from assay.scores import flat_score
from assay.topics import catalogue

SUBMITTED = WalletEventSubmitted.type
SIGNED = WalletScoreSigned.type
REJECTED = GenerationRejected.type
_MOST_BYTES = catalogue()[SUBMITTED].max_bytes
_FETCH_WAIT_MS = 100

log = logging.getLogger(__name__)


class WalletPublisher:
    """Publishes submissions to `wallet.event.submitted.v1`; an async context manager.

    `tenant` must be the topic's tenant (the operator's setting), or the request ids computed here
    differ from the oracle's.
    """

    def __init__(
        self, bootstrap: str, *, source: str = "/assay/client", tenant: str = "default"
    ) -> None:
        self._source = source
        self._tenant = tenant
        self._bootstrap = bootstrap
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        # Idempotent: a plain producer's retries overtake each other on new topics.
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            acks="all",
            compression_type="zstd",
            linger_ms=5,
            max_batch_size=262_144,
            max_request_size=8_388_608,
        )
        await _connected(self._producer.start, self._producer.stop, self._bootstrap)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._producer is not None:
            await self._producer.stop()

    def request_id(self, event_id: str) -> str:
        """The request id the oracle gives to a submission published under `event_id`."""
        return request_id(self._tenant, self._source, event_id)

    async def publish(self, submission: Mapping[str, Any], *, event_id: str | None = None) -> str:
        """Publish `{address, questionnaire?, evm_data?}`; returns the request id once the broker
        has it. The same `event_id` again is the same request; without one it is a new request.

        RecordTooLarge where the topic does not take it, BrokerError where Kafka does not."""
        if self._producer is None:
            raise RuntimeError("enter the publisher first: async with WalletPublisher(…)")
        event_id = event_id or str(uuid.uuid4())
        value = submission_bytes(submission)
        if len(value) > _MOST_BYTES:
            raise RecordTooLarge(f"{len(value):,} bytes; {SUBMITTED} takes {_MOST_BYTES:,}")
        headers = {
            "content-type": "application/json",
            "ce_specversion": "1.0",
            "ce_id": event_id,
            "ce_source": self._source,
            "ce_type": SUBMITTED,
        }
        address = submission.get("address")
        try:
            await self._producer.send_and_wait(
                SUBMITTED,
                value=value,
                key=address.lower().encode(errors="replace") if isinstance(address, str) else None,
                headers=[(name, text.encode()) for name, text in headers.items()],
            )
        except MessageSizeTooLargeError as error:
            raise RecordTooLarge(str(error)) from error
        except KafkaError as error:
            raise BrokerError(f"Kafka at {self._bootstrap} did not take a record: {error}") from error
        return self.request_id(event_id)


def submission_bytes(submission: Mapping[str, Any]) -> bytes:
    """The value as published: compact JSON in UTF-8; escaped where UTF-8 cannot carry it, which
    is a lone surrogate's case."""
    text = json.dumps(submission, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(submission, separators=(",", ":")).encode()


async def _connected(
    start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]], bootstrap: str
) -> None:
    """Start a client; what cannot connect is stopped again, or aiokafka complains at exit."""
    try:
        await start()
    except BaseException as error:
        await stop()
        if isinstance(error, KafkaError | OSError):
            raise BrokerError(f"no Kafka answers at {bootstrap}: {error}") from error
        raise


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended. `score` is the flat signed score; `reason` says why there is none."""

    request_id: str
    status: Literal["signed", "rejected", "dead_lettered"]
    score: dict[str, Any] | None = None
    reason: str | None = None
    code: str | None = None

    def to_json(self) -> dict[str, Any]:
        if self.score is not None:
            return self.score
        return {
            "request_id": self.request_id,
            "status": self.status,
            "code": self.code,
            "reason": self.reason,
        }


class Outcomes:
    """Reads terminal outcomes from the bus, without a consumer group; an async context manager.
    BrokerError on entering where Kafka or its topics are not there.

    `start` is "earliest" or "latest": from the oldest record kept, or from what comes after
    entering. `scores_only` leaves rejections and dead letters out.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        start: Literal["earliest", "latest"] = "latest",
        scores_only: bool = False,
    ) -> None:
        self._start = start
        self._bootstrap = bootstrap
        self._topics = [SIGNED]
        if not scores_only:
            self._topics += [REJECTED, *(topic.name for topic in catalogue().dead_letters())]
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            max_partition_fetch_bytes=8_388_608,
        )

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        try:
            present = set(self._topics) & await self._consumer.topics()
            if SIGNED not in present:
                raise BrokerError(f"Kafka at {self._bootstrap} has no topic {SIGNED}")
            # Without a group every partition of the topics is assigned, once their metadata came.
            self._consumer.subscribe(sorted(present))
            while {tp.topic for tp in self._consumer.assignment()} != present:
                await asyncio.sleep(0.01)
            tps = self._consumer.assignment()
            offsets = (
                await self._consumer.beginning_offsets(tps)
                if self._start == "earliest"
                else await self._consumer.end_offsets(tps)
            )
            for tp, offset in offsets.items():
                self._consumer.seek(tp, offset)
        except BaseException:
            await self._consumer.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._consumer.stop()

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        while True:
            fetched = await self._consumer.getmany(timeout_ms=_FETCH_WAIT_MS)
            for tp, records in fetched.items():
                for record in records:
                    try:
                        outcome = read_outcome(tp.topic, record.value or b"", record.headers)
                    except ValueError:
                        # No service of ours wrote it; the outcomes behind it are still wanted.
                        log.warning("passed over what is no outcome: %s partition %d offset %d",
                                    tp.topic, tp.partition, record.offset)  # fmt: skip
                        continue
                    if outcome is not None:
                        yield outcome


def read_outcome(
    topic: str, value: bytes, headers: Collection[tuple[str, bytes | None]]
) -> Outcome | None:
    """The terminal outcome a record stands for, or None where it stands for none.

    ValueError where the record is not what its topic promises.
    """
    if topic == SIGNED:
        event = WalletScoreSigned.model_validate_json(value)
        return Outcome(event.meta.request_id, "signed", score=flat_score(event))
    if topic == REJECTED:
        rejected = GenerationRejected.model_validate_json(value)
        if not rejected.terminal or rejected.ends_as == "fallback_score":
            return None
        reason = "; ".join(error.message for error in rejected.errors)[:1000]
        return Outcome(rejected.meta.request_id, "rejected", reason=reason, code=rejected.reason)
    text = text_headers(headers)
    request = text.get("assay.request.id") or text.get("ce_requestid")
    if not request:
        return None
    return Outcome(
        request,
        "dead_lettered",
        reason=text.get("__connect.errors.exception.message", "no reason recorded"),
        code=text.get("assay.error.code", "unknown"),
    )
