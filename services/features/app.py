"""Features: accepted wallet events in; features and generation requests out."""

from __future__ import annotations

from assay.events import GenerationRequested, WalletEventAccepted, WalletFeaturesExtracted
from assay_gate.process_endings import SCORE_RESULT
from assay_runtime.pipeline import Pipeline
from assay_runtime.processes import read_registry
from assay_runtime.records import event_decoder
from assay_runtime.seals import Seals
from assay_runtime.service import Service
from assay_runtime.settings import SettingsError
from assay_runtime.stage import per_record
from services.features.handler import FeaturesHandler
from services.features.settings import FeaturesSettings

NAME = "features"
CONSUMES = (WalletEventAccepted.type,)
PRODUCES = (WalletFeaturesExtracted.type, GenerationRequested.type)


def build(settings: FeaturesSettings) -> Service:
    """The service from its settings."""
    section = settings.features
    processes = read_registry(section.processes, "ASSAY_FEATURES__PROCESSES")
    process = processes.current(section.process)
    if process is None:
        known = sorted(processes.by_id)
        raise SettingsError(
            f"ASSAY_FEATURES__PROCESS: no process {section.process!r} among {known}"
        )
    if process.result != SCORE_RESULT:
        raise SettingsError(
            f"ASSAY_FEATURES__PROCESS: {section.process!r} makes no score; its result is "
            f"{process.result}, not {SCORE_RESULT}"
        )
    handler = FeaturesHandler(process, processes, Seals.of(settings.seals))
    return Service(
        name=NAME,
        pipelines=[
            Pipeline(
                name=NAME,
                topics=CONSUMES,
                decode=event_decoder(WalletEventAccepted),
                handler=per_record(handler),
                max_records=section.batch,
            )
        ],
    )
