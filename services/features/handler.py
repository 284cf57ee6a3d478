"""Accepted to features and to the model's first request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from assay.envelope import Message, emit
from assay.events import (
    Defaulted,
    GenerationRequested,
    WalletEventAccepted,
    WalletFeatures,
    WalletFeaturesExtracted,
)
from assay_runtime.records import Delivery
from services.features.domain import build_generation_input, extract_wallet_features

log = structlog.get_logger()

SOURCE = "/assay/features"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """What a generation request names: the recorded hash judges its answer (DESIGN §2)."""

    id: str
    version: str
    hash: str
    step: str


class FeaturesHandler:
    """Pure function of an accepted event."""

    def __init__(self, process: ProcessIdentity) -> None:
        self._process = process

    def __call__(self, delivery: Delivery[WalletEventAccepted]) -> Sequence[Message]:
        accepted = delivery.event
        extraction = extract_wallet_features(accepted.evm_data)
        meta = accepted.meta.caused_by(delivery.id, delivery.value)
        features = WalletFeaturesExtracted(
            meta=meta,
            address=accepted.address,
            features=WalletFeatures.model_validate(extraction.features),
            defaulted=[Defaulted.model_validate(item) for item in extraction.defaulted],
            evm_source=accepted.evm_source,
            evm_sha256=accepted.evm_sha256,
        )
        log.info(
            "features_extracted",
            request_id=meta.request_id,
            trace_id=delivery.span.trace_id,
            defaulted=len(extraction.defaulted),
        )
        process = self._process
        request = GenerationRequested(
            meta=meta.model_copy(
                update={
                    "process_id": process.id,
                    "process_version": process.version,
                    "process_hash": process.hash,
                    "step": process.step,
                    "unit_id": meta.request_id,
                }
            ),
            input=build_generation_input(
                accepted.address,
                extraction,
                [entry.model_dump() for entry in accepted.questionnaire],
                accepted.evm_source,
                accepted.evm_sha256,
            ),
        )
        return [
            emit(event, topic=event.type, source=SOURCE, parent_id=delivery.id)
            for event in (features, request)
        ]
