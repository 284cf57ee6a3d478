"""The one home of delivery semantics: decode, handle, publish, confirm (DESIGN §3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from assay_runtime.dead_letters import DeadLetterLimit
from assay_runtime.failures import DeadLetter, HandlerInstruction
from assay_runtime.handlers import Handler, Outcome, PerRecord, per_record
from assay_runtime.outages import Outages
from assay_runtime.publisher import Publisher
from assay_runtime.record_batches import Outgoing, Sent
from assay_runtime.records import Decoder, Delivery, Record
from assay_runtime.retries import Retries
from assay_runtime.setbacks import Setback, Setbacks
from assay_runtime.spans import log_spans
from assay_runtime.tracing import Span

log = structlog.get_logger()

__all__ = ["Handler", "Outcome", "Stage", "per_record"]

_BUG_TRIES = 3


@dataclass(slots=True)
class _Output:
    """Of a batch: what is to be sent, with its traceparent, and the setbacks and spans to be told
    once it is."""

    messages: list[tuple[Outgoing, str]] = field(default_factory=list)
    setbacks: list[Setback] = field(default_factory=list)
    sampled: list[tuple[Record, Span]] = field(default_factory=list)


class Stage:
    """Runs a handler over records; returning means that every output is confirmed.

    `unwrap` makes of a record the one that is decoded and, where it cannot be handled, passed on.
    """

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
        loses_nothing: bool = False,
        retries: Retries | None = None,
        unwrap: Callable[[Record], Record] | None = None,
        on_pause: Callable[[str | None], None] = lambda what: None,
        pause_s: float = 1.0,
    ) -> None:
        self._pipeline = pipeline
        self._service = service
        self._decode = decode
        self._handler = handler
        self._publisher = publisher
        self._limit = limit
        self._setbacks = Setbacks(
            pipeline,
            service,
            publisher.check,
            limit,
            keeps_dead_letters=keeps_dead_letters,
            loses_nothing=loses_nothing,
            retries=retries,
        )
        self._unwrap = unwrap
        self._outages = Outages(pipeline, on_pause, pause_s)

    async def run(self, records: Sequence[Record]) -> None:
        """Handle the records in order and confirm their outputs; CancelledError leaves them
        undone, which is safe at any point."""
        await self.confirm(await self.send(records))

    async def send(self, records: Sequence[Record]) -> list[Sent]:
        """Handle the records and send their outputs; done only after `confirm`, but what is sent
        for other records from now on stands behind them."""
        started = time.perf_counter()
        if self._unwrap is not None:
            records = [self._unwrap(record) for record in records]
        output = _Output()
        # Everything is judged before anything is sent: above the limit nothing is sent at all.
        if isinstance(self._handler, PerRecord):
            for record in records:
                found = self._decoded(record)
                if isinstance(found, Delivery):
                    outcome = self._handler.one(found)
                    if outcome is None:
                        [outcome] = await self._attempt_alone(found)
                    self._judge(output, found, found.span, outcome)
                else:
                    self._judge(output, record, record.span(), found)
        else:
            decoded = [self._decoded(record) for record in records]
            deliveries = [found for found in decoded if isinstance(found, Delivery)]
            for record, found in zip(records, decoded, strict=True):
                if isinstance(found, DeadLetter):
                    # Before a sink stores the offsets of those behind it.
                    self._setbacks.stop_if_lost(record, found)
            handled = iter(await self._handle(deliveries) if deliveries else ())
            for record, found in zip(records, decoded, strict=True):
                if isinstance(found, Delivery):
                    self._judge(output, found, found.span, next(handled))
                else:
                    self._judge(output, record, record.span(), found)
        sent = await self._publisher.send(output.messages)
        if output.setbacks:
            self._setbacks.tell(output.setbacks)
        if output.sampled:
            log_spans(self._pipeline, output.sampled, len(records), time.perf_counter() - started)
        return sent

    def _judge(
        self, output: _Output, of: Delivery[Any] | Record, span: Span, outcome: Outcome
    ) -> None:
        """What is sent for the record: the outcome's messages, or the record itself elsewhere."""
        trace = span.traceparent
        messages = self._sendable(outcome)
        if isinstance(messages, DeadLetter):
            setback = self._setbacks.judged(of, messages, trace)
            output.setbacks.append(setback)
            messages = setback.messages
        else:
            self._limit.handled()
        for message in messages:
            output.messages.append((message, trace))
        if span.sampled:
            output.sampled.append((of.record if isinstance(of, Delivery) else of, span))

    async def confirm(self, sent: Sequence[Sent]) -> None:
        """Wait for the broker's confirmations of what `send` sent."""
        await self._publisher.confirm(sent)

    def _decoded(self, record: Record) -> Delivery[Any] | DeadLetter:
        try:
            return self._decode(record)
        except DeadLetter as reason:
            return reason
        except HandlerInstruction:
            raise
        except Exception:
            log.exception(
                "decoder_failed",
                pipeline=self._pipeline,
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            )
            return DeadLetter(
                f"the record could not be read; see the log of {self._service}",
                code="decoder_failed",
            )

    def _sendable(self, outcome: Outcome) -> Sequence[Outgoing] | DeadLetter:
        """The outcome, or a DeadLetter where one of its messages is too large to be sent."""
        if isinstance(outcome, DeadLetter):
            return outcome
        try:
            for message in outcome:
                self._publisher.check(message)
        except DeadLetter as too_large:
            return too_large
        return outcome

    async def _handle(self, deliveries: Sequence[Delivery[Any]]) -> Sequence[Outcome]:
        """Outcomes of all deliveries; outages are waited out, bugs are isolated to a record."""
        if len(deliveries) > 1:
            outcomes = await self._attempt(deliveries)
            if outcomes is not None:
                return outcomes
        alone: list[Outcome] = []
        for delivery in deliveries:
            [outcome] = await self._attempt_alone(delivery)
            if isinstance(outcome, DeadLetter):
                self._setbacks.stop_if_lost(delivery.record, outcome)
            alone.append(outcome)
        return alone

    async def _attempt(self, deliveries: Sequence[Delivery[Any]]) -> Sequence[Outcome] | None:
        """The handler's outcomes, or None when the deliveries must be tried one by one."""
        try:
            outcomes = await self._outages.wait_out(lambda: self._handler(deliveries))
            if len(outcomes) != len(deliveries):
                raise RuntimeError(f"{len(outcomes)} outcomes for {len(deliveries)} deliveries")
        except DeadLetter as reason:
            return [reason] if len(deliveries) == 1 else None
        except HandlerInstruction:
            raise
        except Exception:
            log.exception("handler_failed", pipeline=self._pipeline, records=len(deliveries))
            return None
        return outcomes

    async def _attempt_alone(self, delivery: Delivery[Any]) -> Sequence[Outcome]:
        """One delivery; what is logged meanwhile carries its request and trace."""
        with structlog.contextvars.bound_contextvars(
            request_id=delivery.attributes.request_id, trace_id=delivery.span.trace_id
        ):
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
