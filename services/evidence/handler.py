"""Keeps each batch in one transaction with its offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay_runtime.records import Delivery, Position
from assay_runtime.stage import Outcome
from services.evidence.domain import entry_of
from services.evidence.store import EvidenceStore


class EvidenceHandler:
    """Sink: every record is kept, none is published."""

    def __init__(self, store: EvidenceStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    async def __call__(self, deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        records = [delivery.record for delivery in deliveries]
        entries = [
            entry_of(
                record.topic,
                record.partition,
                record.offset,
                record.timestamp_ms,
                record.headers,
                record.value or b"",
                tenant=self._tenant,
            )
            for record in records
        ]
        positions = {
            Position(record.topic, record.partition): record.offset + 1 for record in records
        }
        await self._store.append(entries, positions)
        return [()] * len(deliveries)
