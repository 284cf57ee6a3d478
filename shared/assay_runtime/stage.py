"""The one home of delivery semantics: decode, handle, publish, confirm (DESIGN §3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import structlog

from assay.envelope import Message
from assay_runtime import metrics
from assay_runtime.dead_letters import DeadLetterLimit, dead_letter
from assay_runtime.failures import DeadLetter, HandlerInstruction, Pause, Stop
from assay_runtime.publisher import Publisher
from assay_runtime.records import Decoder, Delivery, Record

log = structlog.get_logger()

Outcome = Sequence[Message] | DeadLetter
_BUG_TRIES = 3


class Handler(Protocol):
    """The one handler shape: deliveries in, one outcome each in the same order out.

    An outcome is the messages to publish (none is fine) or a DeadLetter. Raising DeadLetter is
    for a single delivery; Pause and Stop concern them all. The lane engine calls with one
    delivery, the batch engine with many; repeats of a call must be harmless.
    """

    async def __call__(self, deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]: ...


def per_record(function: Callable[[Delivery[Any]], Sequence[Message]]) -> Handler:
    """Handler from a pure function of one delivery."""

    async def handle(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        for delivery in deliveries:
            try:
                outcomes.append(function(delivery))
            except DeadLetter as reason:
                outcomes.append(reason)
        return outcomes

    return handle


class Stage:
    """Runs a handler over records; returning means that every output is confirmed."""

    def __init__(
        self,
        *,
        pipeline: str,
        service: str,
        decode: Decoder,
        handler: Handler,
        publisher: Publisher,
        limit: DeadLetterLimit,
        keeps_dead_letters: bool = True,
        on_pause: Callable[[str | None], None] = lambda what: None,
        pause_s: float = 1.0,
    ) -> None:
        self._pipeline = pipeline
        self._service = service
        self._decode = decode
        self._handler = handler
        self._publisher = publisher
        self._limit = limit
        self._keeps_dead_letters = keeps_dead_letters
        self._on_pause = on_pause
        self._pause_s = pause_s

    async def run(self, records: Sequence[Record]) -> None:
        """Handle the records in order and confirm their outputs; CancelledError leaves them
        undone, which is safe at any point."""
        outcomes: list[Outcome | None] = []
        deliveries: list[Delivery[Any]] = []
        for record in records:
            try:
                deliveries.append(self._decode(record))
                outcomes.append(None)
            except DeadLetter as reason:
                outcomes.append(reason)
        handled = iter(await self._handle(deliveries) if deliveries else ())
        spans = iter(deliveries)
        futures: list[asyncio.Future[object]] = []
        for record, outcome in zip(records, outcomes, strict=True):
            if outcome is None:
                trace = next(spans).span.traceparent
                outcome = next(handled)
            else:
                trace = record.span().traceparent
            if not isinstance(outcome, DeadLetter):
                try:
                    futures += [await self._publisher.enqueue(m, trace) for m in outcome]
                    self._limit.note(dead=False)
                    continue
                except DeadLetter as too_large:
                    outcome = too_large
            if future := await self._bury(record, outcome, trace):
                futures.append(future)
        await self._publisher.confirm(futures)

    async def _bury(
        self, record: Record, reason: DeadLetter, trace: str
    ) -> asyncio.Future[object] | None:
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
        self._limit.note(dead=True)
        if not self._keeps_dead_letters:
            return None
        return await self._publisher.enqueue(dead_letter(record, reason, self._service), trace)

    async def _handle(self, deliveries: Sequence[Delivery[Any]]) -> Sequence[Outcome]:
        """Outcomes of all deliveries; outages are waited out, bugs are isolated to a record."""
        outcomes = await self._attempt(deliveries)
        if outcomes is not None:
            return outcomes
        alone: list[Outcome] = []
        for delivery in deliveries:
            alone += await self._attempt_alone(delivery)
        return alone

    async def _attempt(self, deliveries: Sequence[Delivery[Any]]) -> Sequence[Outcome] | None:
        """The handler's outcomes, or None when the deliveries must be tried one by one."""
        try:
            return await self._waiting_out(lambda: self._handler(deliveries))
        except DeadLetter as reason:
            return [reason] if len(deliveries) == 1 else None
        except HandlerInstruction:
            raise
        except Exception:
            log.exception("handler_failed", pipeline=self._pipeline, records=len(deliveries))
            return None

    async def _attempt_alone(self, delivery: Delivery[Any]) -> Sequence[Outcome]:
        for attempt in range(1, _BUG_TRIES + 1):
            outcomes = await self._attempt([delivery])
            if outcomes is not None:
                return outcomes
            await asyncio.sleep(0.1 * attempt)
        reason = DeadLetter(
            f"the handler failed {_BUG_TRIES} times; see the log of {self._service}",
            code="handler_failed",
            request_id=delivery.attributes.request_id,
        )
        return [reason]

    async def _waiting_out(
        self, call: Callable[[], Awaitable[Sequence[Outcome]]]
    ) -> Sequence[Outcome]:
        """Repeat the call for as long as it says Pause: wait in place, lose nothing."""
        paused: str | None = None
        try:
            while True:
                try:
                    return await call()
                except Pause as outage:
                    if paused != outage.what:
                        log.warning("paused", pipeline=self._pipeline, reason=str(outage))
                        paused = outage.what
                    metrics.PAUSED.labels(self._pipeline, outage.what).set(1)
                    self._on_pause(str(outage))
                    await asyncio.sleep(self._pause_s)
        finally:
            if paused is not None:
                metrics.PAUSED.labels(self._pipeline, paused).set(0)
                self._on_pause(None)
                log.info("resumed", pipeline=self._pipeline, what=paused)


__all__ = ["Handler", "Outcome", "Stage", "Stop", "per_record"]
