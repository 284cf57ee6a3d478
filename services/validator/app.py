"""Validator: answers in; results, next steps, retries and rejections out."""

from __future__ import annotations

from assay.events import (
    EvidenceRecordSubmitted,
    GenerationAccepted,
    GenerationAnswered,
    GenerationRejected,
    GenerationRequested,
    WalletScoreValidated,
)
from assay_runtime.pipeline import Pipeline
from assay_runtime.processes import read_registry
from assay_runtime.records import event_decoder
from assay_runtime.seals import Seals
from assay_runtime.service import Service
from services.validator.domain.endings import RETRIED
from services.validator.handler import ValidatorHandler
from services.validator.settings import ValidatorSettings

NAME = "validator"
CONSUMES = (GenerationAnswered.type,)
PRODUCES = (
    WalletScoreValidated.type,
    GenerationAccepted.type,
    GenerationRejected.type,
    GenerationRequested.type,
    RETRIED,
    EvidenceRecordSubmitted.type,
)


def build(settings: ValidatorSettings) -> Service:
    """The service from its settings."""
    section = settings.validator
    processes = read_registry(section.processes, "ASSAY_VALIDATOR__PROCESSES")
    handler = ValidatorHandler(processes, section, Seals.of(settings.seals))
    return Service(
        name=NAME,
        pipelines=[
            Pipeline(
                name=NAME,
                topics=CONSUMES,
                decode=event_decoder(GenerationAnswered),
                handler=handler.handle,
                max_records=section.batch,
                waiting=handler.waiting,
            )
        ],
    )
