"""Validator: answers in; validated scores, retries, rejections out."""

from __future__ import annotations

from assay.events import (
    EvidenceRecordSubmitted,
    GenerationAccepted,
    GenerationAnswered,
    GenerationRejected,
    WalletScoreValidated,
)
from assay_gate.process import load_processes
from assay_runtime.pipeline import Pipeline
from assay_runtime.processes import process_folder
from assay_runtime.records import event_decoder
from assay_runtime.service import Service
from assay_runtime.stage import per_record
from services.validator.handler import RETRIED, ValidatorHandler
from services.validator.settings import ValidatorSettings

NAME = "validator"
CONSUMES = (GenerationAnswered.type,)
PRODUCES = (
    WalletScoreValidated.type,
    GenerationAccepted.type,
    GenerationRejected.type,
    RETRIED,
    EvidenceRecordSubmitted.type,
)


def build(settings: ValidatorSettings) -> Service:
    """The service from its settings."""
    section = settings.validator
    processes = load_processes(process_folder(section.processes))
    return Service(
        name=NAME,
        pipelines=[
            Pipeline(
                name=NAME,
                topics=CONSUMES,
                decode=event_decoder(GenerationAnswered),
                handler=per_record(ValidatorHandler(processes, section)),
                max_records=section.batch,
            )
        ],
    )
