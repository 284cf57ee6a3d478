"""Keeps each batch in one transaction with its offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import structlog
from prometheus_client import Counter

from assay.envelope import Attributes
from assay.events import WalletScoreSigned
from assay_runtime.records import Decoder, Delivery, Position, Record
from assay_runtime.stage import Outcome
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
        self._log = log_name

    async def __call__(self, deliveries: Sequence[Delivery[Entry]], /) -> Sequence[Outcome]:
        positions = {
            self._stored(Position(record.topic, record.partition)): record.offset + 1
            for record in (delivery.record for delivery in deliveries)
        }
        rows = await self._store.append([delivery.event for delivery in deliveries], positions)
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

    async def positions(self, wanted: Collection[Position]) -> dict[Position, int]:
        """Where to go on reading, as the store knows it."""
        names = {self._stored(position): position for position in wanted}
        found = await self._store.positions(names)
        return {names[stored]: offset for stored, offset in found.items()}

    async def pass_over(self, positions: Mapping[Position, int]) -> None:
        """Go on behind what retention removed."""
        await self._store.append([], {self._stored(p): at for p, at in positions.items()})

    def _stored(self, position: Position) -> Position:
        """The position's name in the store: offsets start anew with each incarnation."""
        if not self._log:
            return position
        return Position(f"{self._log}/{position.topic}", position.partition)
