"""What is sent for a record that a handler could not handle: itself, to be tried later or kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from assay_runtime import metrics
from assay_runtime.dead_letters import DeadLetterLimit, dead_letter
from assay_runtime.failures import DeadLetter, RetryLater, Stop
from assay_runtime.raw_message import RawMessage
from assay_runtime.record_batches import Outgoing
from assay_runtime.records import Delivery, Record
from assay_runtime.retries import RetriedRecord, Retries

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Setback:
    """A record that could not be handled, and whose request it was as far as that is known.
    `messages` is what is sent for it: none by a sink, one to a retry topic where it is `postponed`,
    else one to a dead-letter topic."""

    record: Record
    reason: DeadLetter
    request_id: str | None
    trace: str
    messages: tuple[RawMessage, ...] = ()
    postponed: bool = False


class Setbacks:
    """Judges, and tells what was sent. `check` raises DeadLetter for a message too large to be
    sent; without `retries` nothing is tried later; a sink keeps no dead letters, and one that is
    to lose nothing says Stop, because what it passed over it would never see again."""

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

    def judged(self, of: Delivery[Any] | Record, reason: DeadLetter, trace: str) -> Setback:
        """What becomes of the record; Stop once too many of the last could not be handled."""
        record, request_id = (of, None) if isinstance(of, Record) else _asked(of)
        # Whoever asked is told, also by a reason that does not know who that is.
        request_id = reason.request_id or request_id
        if isinstance(reason, RetryLater) and (later := self._postponed(record, reason)):
            # It counts as handled or not once it is back.
            return Setback(record, reason, request_id, trace, (later,), postponed=True)
        self.stop_if_lost(record, reason)
        self._limit.dead(record, reason)
        if not self._keeps_dead_letters:
            return Setback(record, reason, request_id, trace)
        tries = record.attempt + 1 if isinstance(record, RetriedRecord) else 1
        kept = dead_letter(
            record, reason, self._service, self._check, attempts=tries, request_id=request_id
        )
        return Setback(record, reason, request_id, trace, (kept,))

    def stop_if_lost(self, record: Record, reason: DeadLetter) -> None:
        """Stop where nothing may be passed over."""
        if self._loses_nothing:
            place = f"{record.topic}/{record.partition}/{record.offset}"
            raise Stop(f"{place} cannot be kept and must not be passed over: {reason}")

    def tell(self, setbacks: Iterable[Setback]) -> None:
        """Count and log them, once they are sent and not before: a batch may end the process."""
        for setback in setbacks:
            self._tell(setback, setback.record, setback.reason)

    def _tell(self, setback: Setback, record: Record, reason: DeadLetter) -> None:
        what: dict[str, Any] = {"reason": str(reason)[:300], "trace_id": setback.trace[3:35]}
        what["request_id"] = setback.request_id or record.header("ce_requestid")
        if setback.postponed:
            event = "record_postponed"
            what |= {"to": setback.messages[0].topic}
            metrics.POSTPONED.labels(self._pipeline, what["to"], reason.code).inc()
        else:
            event = "record_dead_lettered" if setback.messages else "record_passed_over"
            metrics.DEAD_LETTERED.labels(self._pipeline, record.topic, reason.code).inc()
        log.warning(
            event,
            pipeline=self._pipeline,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            code=reason.code,
            **what,
        )

    def _postponed(self, record: Record, reason: RetryLater) -> RawMessage | None:
        """None where there is no further try, or the record would be too large for it."""
        message = self._retries.postponed(record, reason) if self._retries else None
        if message is None:
            return None
        try:
            self._check(message)
        except DeadLetter:
            return None
        return message


def _asked(of: Delivery[Any]) -> tuple[Record, str | None]:
    return of.record, of.attributes.request_id
