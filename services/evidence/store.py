"""What evidence needs of a store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from assay_runtime.records import Position
from services.evidence.domain import Entry, Row
from services.evidence.domain.erasure import Erased, Erasure


@dataclass(frozen=True, slots=True)
class Query:
    """What to list; None asks for no such restriction. `since_ms` is inclusive."""

    request_id: str | None = None
    wallet: str | None = None
    type: str | None = None
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """(cursor, row) in the order of arrival; `next` is the cursor to go on behind, None at the
    end."""

    rows: Sequence[tuple[int, Row]]
    next: int | None


def page_of(sizes: Sequence[tuple[int, int]], limit: int, max_bytes: int) -> tuple[list[int], bool]:
    """The ids of one page out of (id, bytes) of the rows that follow, and whether more follow.

    A page holds at most `limit` rows and `max_bytes`, but always one row if there is any.
    """
    ids: list[int] = []
    total = 0
    for row_id, size in sizes[:limit]:
        total += size
        if ids and total > max_bytes:
            break
        ids.append(row_id)
    return ids, len(ids) < len(sizes)


class EvidenceStore(Protocol):
    """Append-only, but for the text of erased rows. Raises Pause while the database is away."""

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

    async def query(self, query: Query, after: int, limit: int, max_bytes: int) -> Page:
        """The rows behind cursor `after`, as `page_of` cuts them."""
        ...

    async def values(self, event_ids: Collection[str]) -> dict[str, bytes]:
        """The values kept of these events, of those that are there and not erased."""
        ...

    async def erasable(self, erasure: Erasure) -> int:
        """How many rows `erase` would empty."""
        ...

    async def erase(self, erasure: Erasure) -> Erased:
        """Empty value, headers and salt of the rows and append the rows that say so. What fails
        on the way can be asked for again."""
        ...
