"""How requests end, read from the records that say so (SPEC X.2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any, Literal, Self

from aiokafka import AIOKafkaConsumer

from assay.connection import connected
from assay.envelope import text_headers
from assay.errors import BrokerError
from assay.events import GenerationRejected, WalletScoreSigned
from assay.scores import flat_score
from assay.topics import catalogue

SIGNED = WalletScoreSigned.type
REJECTED = GenerationRejected.type
_FETCH_WAIT_MS = 100
_METADATA_S = 30

log = logging.getLogger(__name__)


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
        await connected(self._start_reading, self._consumer.stop, self._bootstrap)
        return self

    async def _start_reading(self) -> None:
        await self._consumer.start()
        present = set(self._topics) & await self._consumer.topics()
        if SIGNED not in present:
            raise BrokerError(f"Kafka at {self._bootstrap} has no topic {SIGNED}")
        # Without a group every partition of the topics is assigned, once their metadata came.
        self._consumer.subscribe(sorted(present))
        async with asyncio.timeout(_METADATA_S):
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

    async def __aexit__(self, *_: object) -> None:
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
