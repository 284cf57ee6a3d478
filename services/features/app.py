"""Features: accepted wallet events in; features and generation requests out."""

from __future__ import annotations

from assay.events import GenerationRequested, WalletEventAccepted, WalletFeaturesExtracted
from assay_gate.process import load_processes
from assay_runtime.pipeline import Pipeline
from assay_runtime.processes import process_folder
from assay_runtime.records import event_decoder
from assay_runtime.service import Service
from assay_runtime.settings import SettingsError
from assay_runtime.stage import per_record
from services.features.handler import FeaturesHandler, ProcessIdentity
from services.features.settings import FeaturesSettings

NAME = "features"
CONSUMES = (WalletEventAccepted.type,)
PRODUCES = (WalletFeaturesExtracted.type, GenerationRequested.type)


def build(settings: FeaturesSettings) -> Service:
    """The service from its settings."""
    section = settings.features
    processes = load_processes(process_folder(section.processes))
    process = processes.get(section.process)
    if process is None:
        raise SettingsError(
            f"ASSAY_FEATURES__PROCESS: no process {section.process!r} among {sorted(processes)}"
        )
    identity = ProcessIdentity(process.id, process.version, process.hash, process.steps[0].name)
    return Service(
        name=NAME,
        pipelines=[
            Pipeline(
                name=NAME,
                topics=CONSUMES,
                decode=event_decoder(WalletEventAccepted),
                handler=per_record(FeaturesHandler(identity)),
                max_records=section.batch,
            )
        ],
    )
