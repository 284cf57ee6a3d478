"""What is sent for a record that a handler could not handle: itself, to be tried later or kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from assay_runtime import metrics
from assay_runtime.dead_letters import DeadLetterLimit, dead_letter
from assay_runtime.failures import DeadLetter, RetryLater, Stop
from assay_runtime.raw_message import RawMessage
from assay_runtime.record_batches import Outgoing
from assay_runtime.records import Record
from assay_runtime.retries import RetriedRecord, Retries

log = structlog.get_logger()


class Setbacks:
    """Counts and logs each of them. `check` raises DeadLetter for a message too large to be sent;
    without `retries` nothing is tried later; a sink keeps no dead letters, and one that is to lose
    nothing says Stop, because what it passed over it would never see again."""

    def __init__(
        self,
        pipeline: str,
        service: str,
        check: Callable[[Outgoing], None],
        limit: DeadLetterLimit,
        *,
        keeps_dead_letters: bool,
        loses_nothing: bool,
        retries: Retries | None,
    ) -> None:
        self._pipeline = pipeline
        self._service = service
        self._check = check
        self._limit = limit
        self._keeps_dead_letters = keeps_dead_letters
        self._loses_nothing = loses_nothing
        self._retries = retries

    def none(self) -> None:
        """A record was handled; Stop once too many of the last were not."""
        self._limit.note(dead=False)

    def messages(self, record: Record, reason: DeadLetter, trace: str) -> Sequence[RawMessage]:
        """The record for a retry topic or a dead-letter topic; Stop once too many are buried."""
        if isinstance(reason, RetryLater) and (later := self._postponed(record, reason)):
            return (later,)  # judged when it comes back
        if self._loses_nothing:
            place = f"{record.topic}/{record.partition}/{record.offset}"
            raise Stop(f"{place} cannot be kept and must not be passed over: {reason}")
        self._limit.note(dead=True)
        metrics.DEAD_LETTERED.labels(self._pipeline, record.topic, reason.code).inc()
        log.warning(
            "record_dead_lettered",
            pipeline=self._pipeline,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            code=reason.code,
            reason=str(reason)[:300],
            request_id=reason.request_id or record.header("ce_requestid"),
            trace_id=trace[3:35],
        )
        if not self._keeps_dead_letters:
            return ()
        tries = record.attempt + 1 if isinstance(record, RetriedRecord) else 1
        return (dead_letter(record, reason, self._service, self._check, attempts=tries),)

    def _postponed(self, record: Record, reason: RetryLater) -> RawMessage | None:
        """None where there is no further try, or the record would be too large for it."""
        message = self._retries.postponed(record, reason) if self._retries else None
        if message is None:
            return None
        try:
            self._check(message)
        except DeadLetter:
            return None
        metrics.POSTPONED.labels(self._pipeline, message.topic, reason.code).inc()
        log.warning(
            "record_postponed",
            pipeline=self._pipeline,
            to=message.topic,
            origin_partition=record.partition,
            origin_offset=record.offset,
            code=reason.code,
            reason=str(reason)[:300],
            request_id=reason.request_id or record.header("ce_requestid"),
        )
        return message
