"""The events, one pydantic model each; `EVENTS` maps an event's name to its model."""

from __future__ import annotations

from assay.events.advisory import Advisory, AdvisoryAnswerDelivered, AdvisoryQueryAccepted
from assay.events.evidence import EvidenceRecordSubmitted
from assay.events.llm import (
    FieldError,
    GenerationAccepted,
    GenerationAnswered,
    GenerationRejected,
    GenerationRequested,
    ModelFault,
)
from assay.events.meta import Event, InternalEvent, Meta
from assay.events.wallet import (
    Attestation,
    Defaulted,
    QuestionAnswer,
    ScoreBreakdown,
    WalletEventAccepted,
    WalletEventSubmitted,
    WalletFeatures,
    WalletFeaturesExtracted,
    WalletScoreSigned,
    WalletScoreValidated,
)

EVENTS: dict[str, type[Event]] = {
    model.type: model
    for model in (
        WalletEventSubmitted,
        WalletEventAccepted,
        WalletFeaturesExtracted,
        GenerationRequested,
        GenerationAnswered,
        GenerationRejected,
        GenerationAccepted,
        WalletScoreValidated,
        WalletScoreSigned,
        AdvisoryQueryAccepted,
        AdvisoryAnswerDelivered,
        EvidenceRecordSubmitted,
    )
}

__all__ = [
    "EVENTS",
    "Advisory",
    "AdvisoryAnswerDelivered",
    "AdvisoryQueryAccepted",
    "Attestation",
    "Defaulted",
    "Event",
    "EvidenceRecordSubmitted",
    "FieldError",
    "GenerationAccepted",
    "GenerationAnswered",
    "GenerationRejected",
    "GenerationRequested",
    "InternalEvent",
    "Meta",
    "ModelFault",
    "QuestionAnswer",
    "ScoreBreakdown",
    "WalletEventAccepted",
    "WalletEventSubmitted",
    "WalletFeatures",
    "WalletFeaturesExtracted",
    "WalletScoreSigned",
    "WalletScoreValidated",
]
