"""The evidence store as the handler and the pages see it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from assay_runtime.records import Position
from services.evidence.domain import Entry, Row


@dataclass(frozen=True, slots=True)
class Query:
    """What to list; None asks for no such restriction. `since_ms` is inclusive."""

    request_id: str | None = None
    wallet: str | None = None
    type: str | None = None
    since_ms: int | None = None


class EvidenceStore(Protocol):
    """Append-only. Raises Pause while the database is away."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def append(
        self, entries: Sequence[Entry], positions: Mapping[Position, int]
    ) -> list[Row]:
        """Keep entries and the offsets to read next in one transaction; returns the new rows."""
        ...

    async def positions(self, wanted: Collection[Position]) -> dict[Position, int]:
        """The offsets to read next, of the partitions that have one."""
        ...

    async def query(self, query: Query, after: int, limit: int) -> list[tuple[int, Row]]:
        """(cursor, row) in the order of arrival, from behind cursor `after`."""
        ...
