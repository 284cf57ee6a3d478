"""Validated to signed: one signature per request, conflicts recorded beside it."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from prometheus_client import Counter

from assay.envelope import Message, emit
from assay.events import EvidenceRecordSubmitted, WalletScoreSigned, WalletScoreValidated
from assay_runtime.failures import DeadLetter, Pause, Stop
from assay_runtime.records import Delivery
from assay_runtime.stage import Outcome
from services.signer.domain.reservation import ClockRefused, Conflict
from services.signer.domain.signed_event import ValidatedScore
from services.signer.domain.signing import KeyFault, Refused, Signed, SignedOutcome, Signer

log = structlog.get_logger()

SOURCE = "/assay/signer"

# Validated scores by what became of them.
OUTCOMES = Counter("assay_signer_outcomes_total", "Validated scores", ["outcome"])


class SignerHandler:
    """Publishes what the ledger says is the request's one signed event."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    async def __call__(
        self, deliveries: Sequence[Delivery[WalletScoreValidated]], /
    ) -> Sequence[Outcome]:
        batch = [ValidatedScore(d.id, d.value, d.event) for d in deliveries]
        try:
            signed = await self._signer.sign_batch(batch)
        except KeyFault as fault:
            raise Stop(str(fault)) from fault
        for outcome in signed:
            if isinstance(outcome, ClockRefused):
                raise Pause(
                    "clock",
                    f"the next timestamp would be {outcome.timestamp_ms}, more than a minute "
                    f"ahead of {outcome.now_ms}",
                )
        return [
            _published(delivery, outcome)
            for delivery, outcome in zip(deliveries, signed, strict=True)
        ]


def _published(delivery: Delivery[WalletScoreValidated], outcome: SignedOutcome) -> Outcome:
    meta = delivery.event.meta
    ids = {"request_id": meta.request_id, "trace_id": delivery.span.trace_id}
    if isinstance(outcome, Signed):
        OUTCOMES.labels("repeated" if outcome.repeat else "signed").inc()
        log.info("score_signed", event_id=outcome.event_id, repeat=outcome.repeat, **ids)
        return [_message(delivery, outcome.event_id, outcome.value)]
    if isinstance(outcome, Conflict):
        OUTCOMES.labels("conflict").inc()
        repeated = None if outcome.signed is None else outcome.signed.event_id
        log.warning("ledger_conflict", reason=outcome.reason, repeated_event_id=repeated, **ids)
        record = EvidenceRecordSubmitted(
            meta=meta.caused_by(delivery.id, delivery.value),
            record="LEDGER_CONFLICT",
            payload={
                "refused_event_id": delivery.id,
                "refused_score": delivery.event.score,
                "signed_from_event_id": outcome.source_event_id,
                "signed_score": outcome.score,
                "reason": outcome.reason,
            },
        )
        recorded = emit(record, topic=record.type, source=SOURCE, parent_id=delivery.id)
        if outcome.signed is None:
            return [recorded]
        # Ingest may have forgotten the request and let it in anew: its signed event ends it there.
        return [_message(delivery, outcome.signed.event_id, outcome.signed.event), recorded]
    if isinstance(outcome, Refused):
        OUTCOMES.labels("refused").inc()
        return DeadLetter(
            outcome.reason,
            code="unsignable",
            pointer=outcome.pointer,
            request_id=meta.request_id,
        )
    raise AssertionError(outcome)  # a clock that is off pauses the batch before this


def _message(delivery: Delivery[WalletScoreValidated], event_id: str, value: bytes) -> Message:
    """The stored bytes as they are; a repeat is byte-identical, event id included."""
    event = WalletScoreSigned.model_validate_json(value)
    message = emit(
        event,
        topic=event.type,
        source=SOURCE,
        parent_id=event.meta.causation_id or delivery.id,
        value=value,
    )
    if message.id != event_id:
        raise Stop(f"the ledger holds event id {event_id} for bytes of id {message.id}")
    return message
