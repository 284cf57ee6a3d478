"""Accepted to features and to the first request of the process and of its shadows."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from assay.envelope import Message, emit
from assay.events import (
    Defaulted,
    GenerationRequested,
    WalletEventAccepted,
    WalletFeatures,
    WalletFeaturesExtracted,
)
from assay_gate.chain import request_meta
from assay_gate.process import Process
from assay_gate.process_registry import ProcessRegistry
from assay_runtime.records import Delivery
from assay_runtime.seals import TRUSTING, Seals
from services.features.domain import build_generation_input, extract_wallet_features

log = structlog.get_logger()

SOURCE = "/assay/features"


class FeaturesHandler:
    """Pure function of an accepted event: features, the process's request, and one request to
    each of its shadows that takes this wallet."""

    def __init__(
        self, process: Process, processes: ProcessRegistry, seals: Seals = TRUSTING
    ) -> None:
        self._process = process
        self._processes = processes
        self._seals = seals

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
        given = build_generation_input(
            accepted.address,
            extraction,
            [entry.model_dump() for entry in accepted.questionnaire],
            accepted.evm_source,
            accepted.evm_sha256,
        )
        # Shadows' requests share the key, so they stand behind: a first attempt is not held up.
        shadows = self._processes.shadows_for(self._process.id, accepted.key)
        requests = [
            GenerationRequested(meta=request_meta(process, meta), input=given)
            for process in (self._process, *shadows)
        ]
        first, *asked = (
            emit(event, topic=event.type, source=SOURCE, parent_id=delivery.id)
            for event in (features, *requests)
        )
        return [first, *map(self._seals.put, asked)]
