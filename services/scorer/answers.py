"""Requests to answer messages; a redelivered request is answered from memory, not by the model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import structlog
from prometheus_client import Counter

from assay.envelope import Message, emit
from assay.events import GenerationAnswered, GenerationRequested
from assay_runtime.failures import DeadLetter
from assay_runtime.records import Delivery
from assay_runtime.stage import Outcome
from services.scorer.handler import ScorerHandler

log = structlog.get_logger()

SOURCE = "/assay/scorer"

# Requests by what the model brought; `remembered` cost no model call.
ANSWERED = Counter("assay_model_requests_total", "Generation requests", ["outcome"])


class AnswerMessages:
    """The lane's handler. `kept` answers are remembered by the request's event id, so that what
    is read again after a rebalance is not paid for again."""

    def __init__(self, handler: ScorerHandler, kept: int) -> None:
        self._handler = handler
        self._kept = kept
        self._answers: OrderedDict[str, Message] = OrderedDict()

    async def __call__(
        self, deliveries: Sequence[Delivery[GenerationRequested]], /
    ) -> Sequence[Outcome]:
        return [await self._one(delivery) for delivery in deliveries]

    async def _one(self, delivery: Delivery[GenerationRequested]) -> Outcome:
        if remembered := self._answers.get(delivery.id):
            self._answers.move_to_end(delivery.id)
            ANSWERED.labels("remembered").inc()
            return [remembered]
        request = delivery.event
        try:
            fields = await self._handler.answer(request)
            meta = self._handler.stamped_meta(request)
        except DeadLetter as refusal:
            return refusal
        event = GenerationAnswered.model_validate(
            {"meta": meta.caused_by(delivery.id, delivery.value), **fields}
        )
        message = emit(event, topic=event.type, source=SOURCE, parent_id=delivery.id)
        ANSWERED.labels(event.outcome).inc()
        log.info(
            "model_answered",
            request_id=request.meta.request_id,
            trace_id=delivery.span.trace_id,
            attempt=request.meta.attempt,
            outcome=event.outcome,
            finish_reason=event.finish_reason,
            code=event.error.code if event.error else None,
        )
        if event.outcome == "answered":
            self._answers[delivery.id] = message
            while len(self._answers) > self._kept:
                self._answers.popitem(last=False)
        return [message]
