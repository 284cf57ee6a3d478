"""Keeps each batch in one transaction with its offsets."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from prometheus_client import Counter

from assay.envelope import Attributes
from assay.events import WalletScoreSigned
from assay_runtime.records import Decoder, Delivery, Record
from assay_runtime.stage import Outcome
from assay_runtime.stored_offsets import StoredOffsets
from services.evidence.domain import Entry, entry_of
from services.evidence.store import EvidenceStore

log = structlog.get_logger()

# Records kept; repeats of one event are kept once.
KEPT = Counter("assay_evidence_rows_total", "Records kept")


def entry_decoder(tenant: str, log_name: str = "") -> Decoder:
    """Decoder of any record into the entry that is kept of it; nothing can be wrong with one."""

    def decode(record: Record) -> Delivery[Entry]:
        entry = entry_of(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp_ms,
            record.headers,
            record.value or b"",
            tenant=tenant,
            key=record.key,
            log=log_name,
        )
        attributes = Attributes(entry.event_id, "", entry.type, entry.request_id)
        return Delivery(record, entry, attributes, record.span())

    return decode


class EvidenceHandler:
    """Sink: every record is kept, none is published."""

    def __init__(self, store: EvidenceStore, log_name: str = "") -> None:
        self._store = store
        self.offsets = StoredOffsets(
            log_name, store.positions, lambda offsets: store.append([], offsets)
        )

    async def __call__(self, deliveries: Sequence[Delivery[Entry]], /) -> Sequence[Outcome]:
        entries = [delivery.event for delivery in deliveries]
        rows = await self._store.append(entries, self.offsets.behind(deliveries))
        KEPT.inc(len(rows))
        self._say(deliveries, {row.entry.event_id for row in rows})
        return [()] * len(deliveries)

    @staticmethod
    def _say(deliveries: Sequence[Delivery[Entry]], kept: set[str]) -> None:
        """One line for each score whose signature is on record: the end of its trace."""
        for delivery in deliveries:
            if delivery.record.topic == WalletScoreSigned.type and delivery.id in kept:
                log.info(
                    "signed_score_kept",
                    request_id=delivery.attributes.request_id,
                    trace_id=delivery.span.trace_id,
                )
