"""How requests end, read from the records that say so (SPEC X.2)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any, Literal, Self

from aiokafka import AIOKafkaConsumer

from assay.connection import connected
from assay.envelope import text_headers
from assay.errors import BrokerError
from assay.events import GenerationAccepted, GenerationRejected, WalletScoreSigned
from assay.scores import flat_score
from assay.topics import catalogue

SIGNED = WalletScoreSigned.type
ACCEPTED = GenerationAccepted.type
REJECTED = GenerationRejected.type
# Beginnings of topics whose events' meta may bear a mark, as `shadow`.
_MARKED = ("llm.generation.", "wallet.score.validated.")
_FETCH_WAIT_MS = 100
_METADATA_S = 30

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended. `score` is the flat signed score, `reason` says why there is none.

    `answer` is the result of a process that makes no score: `{output, process_id,
    process_version, attempts, model, fallback, repairs}`. `errors` says field by field what was
    wrong with the last answer or with the request: `{path, rule, message}`. `unsealed` where no
    service asked, but a client on the bus: it says nothing about another's request of the same id.
    """

    request_id: str
    status: Literal["signed", "accepted", "rejected", "dead_lettered"]
    score: dict[str, Any] | None = None
    reason: str | None = None
    code: str | None = None
    answer: dict[str, Any] | None = None
    errors: tuple[dict[str, str], ...] = ()
    unsealed: bool = False

    def to_json(self) -> dict[str, Any]:
        if self.score is not None:
            return self.score
        shown: dict[str, Any] = {"request_id": self.request_id, "status": self.status}
        if self.answer is not None:
            return shown | self.answer
        shown |= {"code": self.code, "reason": self.reason}
        return shown | ({"errors": list(self.errors)} if self.errors else {})


def read_outcome(
    topic: str, value: bytes, headers: Collection[tuple[str, bytes | None]]
) -> Outcome | None:
    """The terminal outcome a record stands for, or None where it stands for none: an attempt or a
    step that another follows, and whatever comes of a shadow process.

    ValueError where the record is not what its topic promises.
    """
    if topic == SIGNED:
        event = WalletScoreSigned.model_validate_json(value)
        return Outcome(event.meta.request_id, "signed", score=flat_score(event))
    if topic == ACCEPTED:
        return _accepted(GenerationAccepted.model_validate_json(value))
    if topic == REJECTED:
        return _rejected(GenerationRejected.model_validate_json(value))
    return _dead_lettered(topic, value, text_headers(headers))


def _accepted(event: GenerationAccepted) -> Outcome | None:
    meta = event.meta
    if meta.shadow or not event.final:
        return None
    answer = {
        "output": event.output,
        "process_id": meta.process_id,
        "process_version": meta.process_version,
        "attempts": event.attempts,
        "model": event.model,
        "fallback": event.fallback,
        "repairs": event.repairs,
    }
    reason = f"process {meta.process_id} makes no score"
    if meta.unsealed:
        reason = "no score is signed of what a client asked for on the bus"
    return Outcome(
        meta.request_id, "accepted", reason=reason, answer=answer, unsealed=meta.unsealed
    )


def _rejected(event: GenerationRejected) -> Outcome | None:
    followed = event.ends_as == "fallback_score" or event.empty_result
    if event.meta.shadow or followed or not event.terminal:
        return None
    return Outcome(
        event.meta.request_id,
        "rejected",
        reason="; ".join(error.message for error in event.errors)[:1000],
        code=event.reason,
        errors=tuple(
            {"path": error.path, "rule": error.rule, "message": error.message}
            for error in event.errors
        ),
        unsealed=event.meta.unsealed,
    )


def _dead_lettered(topic: str, value: bytes, headers: dict[str, str]) -> Outcome | None:
    request = headers.get("assay.request.id") or headers.get("ce_requestid")
    meta = _meta_of(value) if topic.startswith(_MARKED) else {}
    if not request or meta.get("shadow") is True:
        return None
    code = headers.get("assay.error.code", "unknown")
    reason = headers.get("__connect.errors.exception.message", "no reason recorded")
    path = "$" + headers.get("assay.error.pointer", "").replace("/", ".")
    errors = () if path == "$" else ({"path": path, "rule": code, "message": reason},)
    unsealed = meta.get("unsealed") is True
    return Outcome(
        request, "dead_lettered", reason=reason, code=code, errors=errors, unsealed=unsealed
    )


def _meta_of(value: bytes) -> dict[str, Any]:
    """The meta of a dead letter's event, where it can be read. Its marks tell of shadows, which
    have their original's request id, and of whatever id a client wrote on a request."""
    try:
        meta = json.loads(value)["meta"]
        return meta if isinstance(meta, dict) else {}
    except (ValueError, TypeError, LookupError, RecursionError):
        return {}


class Outcomes:
    """Reads terminal outcomes from the bus, without a consumer group; an async context manager.
    BrokerError on entering where Kafka or its topics are not there.

    `start` is "earliest" or "latest": from the oldest record kept, or from what comes after
    entering. `scores_only` leaves everything else out.
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
            dead_letters = (topic.name for topic in catalogue().dead_letters())
            self._topics += [ACCEPTED, REJECTED, *dead_letters]
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
