"""Requests to answer messages; what was answered before is repeated, not asked of the model again.

A redelivered request gets the very message it got; a request of a process that allows it may be
served another request's accepted answer (`accepted_answers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog
from prometheus_client import Counter

from assay.envelope import Message, emit
from assay.events import GenerationAnswered, GenerationRequested, Meta
from assay.topics import catalogue
from assay_runtime.failures import DeadLetter
from assay_runtime.records import Delivery
from assay_runtime.stage import Outcome
from services.scorer.accepted_answers import AcceptedAnswers
from services.scorer.domain.bounded import Bounded
from services.scorer.domain.question import Unasked
from services.scorer.handler import ScorerHandler
from services.scorer.seal_check import SealCheck

log = structlog.get_logger()

SOURCE = "/assay/scorer"
# The model call's duration stands beside the event, not in it: an event's value is the same
# whenever it is made (SPEC S5.5, DESIGN §2). Absent where no model was asked.
DURATION = "assay_duration_ms"
# What a remembered message takes besides its value; a rough upper bound.
_OVERHEAD = 2_048

_TOPICS = {topic.name: topic for topic in catalogue().consumed_by("scorer")}

# Requests by what the model brought; `remembered` and `served` cost no model call.
ANSWERED = Counter("assay_model_requests_total", "Generation requests", ["outcome"])


class AnswerMessages:
    """The lane's handler. `remembered` holds answers by the request's event id, so that what is
    read again after a rebalance is not paid for again.

    A client chooses its event ids, so it could leave an answer under the id of a request to come;
    what no service sealed is remembered apart. A seal holds for one id and one value.
    """

    def __init__(
        self,
        handler: ScorerHandler,
        accepted: AcceptedAnswers,
        remembered: Bounded[Message],
        seal_check: SealCheck | None = None,
    ) -> None:
        self._handler = handler
        self._accepted = accepted
        self._remembered = remembered
        self._seal_check = seal_check or SealCheck()

    async def __call__(
        self, deliveries: Sequence[Delivery[GenerationRequested]], /
    ) -> Sequence[Outcome]:
        return [await self._one(delivery) for delivery in deliveries]

    async def _one(self, delivery: Delivery[GenerationRequested]) -> Outcome:
        try:
            _fits(delivery)
            unsealed = self._seal_check.unsealed(delivery)
        except DeadLetter as refusal:
            return refusal
        name = f"unsealed {delivery.id}" if unsealed else delivery.id
        if remembered := self._remembered.get(name):
            ANSWERED.labels("remembered").inc()
            return [remembered]
        try:
            question = await self._handler.question(delivery.event, unsealed=unsealed)
        except DeadLetter as refusal:
            return refusal
        if isinstance(question, Unasked):
            event, message = _message(delivery, question.meta, question.fields)
        elif served := self._accepted.served(question):
            event, message = _message(delivery, question.meta, served)
        else:
            fields, seconds = await self._handler.ask(question)
            event, message = _message(delivery, question.meta, fields, seconds)
            self._accepted.offer(question, event, message.id)
        if event.outcome == "answered":
            self._remembered.put(name, message, len(message.value) + _OVERHEAD)
        _tell(delivery, event)
        return [message]


def _fits(delivery: Delivery[GenerationRequested]) -> None:
    """DeadLetter for a request larger than its topic takes, or that outgrows it once written in
    full, as what follows from its answer will repeat it. A broker measures compressed batches."""
    topic = _TOPICS[delivery.record.topic]
    size, written = len(delivery.value), len(delivery.event.to_bytes())
    if size > topic.max_bytes or written > topic.record_bytes:
        raise DeadLetter(
            f"the request has {size:,} bytes, {written:,} written in full; "
            f"{topic.name} takes {topic.max_bytes:,}",
            code="request_too_large",
            request_id=delivery.event.meta.request_id,
        )


def _message(
    delivery: Delivery[GenerationRequested],
    meta: Meta,
    fields: dict[str, Any],
    seconds: float | None = None,
) -> tuple[GenerationAnswered, Message]:
    event = GenerationAnswered.model_validate(
        {"meta": meta.caused_by(delivery.id, delivery.value), **fields}
    )
    message = emit(event, topic=event.type, source=SOURCE, parent_id=delivery.id)
    if seconds is not None:
        duration = (DURATION, str(round(seconds * 1000)).encode())
        message = message._replace(headers=(*message.headers, duration))
    return event, message


def _tell(delivery: Delivery[GenerationRequested], event: GenerationAnswered) -> None:
    ANSWERED.labels("served" if event.served_from else event.outcome).inc()
    log.info(
        "model_answered",
        request_id=event.meta.request_id,
        trace_id=delivery.span.trace_id,
        attempt=event.meta.attempt,
        unsealed=event.meta.unsealed,
        outcome=event.outcome,
        finish_reason=event.finish_reason,
        served_from=event.served_from,
        code=event.error.code if event.error else None,
    )
