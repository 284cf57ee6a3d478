"""Offsets to read next that a sink keeps beside its rows, in their transaction: where the rows are
restored from a backup, reading goes on from there (DESIGN §3)."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from assay_runtime.records import Delivery, Position
from assay_runtime.starting import FROM_FIRST

Offsets = Mapping[Position, int]


class StoredOffsets:
    """StoredPositions over a sink's store: `read` has those that it keeps of the named, `keep`
    adds some without rows.

    `log` names the incarnation of a log that forgets: offsets start anew with each, and so do the
    names under which the store has them. What a store without an offset never had is lost to it;
    not so with `misses_nothing`.
    """

    def __init__(
        self,
        log: str,
        read: Callable[[Collection[Position]], Awaitable[Offsets]],
        keep: Callable[[Offsets], Awaitable[object]],
        *,
        misses_nothing: bool = False,
    ) -> None:
        self._log = log
        self._read = read
        self._keep = keep
        self._misses_nothing = misses_nothing

    def behind(self, deliveries: Sequence[Delivery[Any]]) -> Offsets:
        """What to store with the rows of these records, which are in the order of their offsets."""
        return {
            self._name(Position(record.topic, record.partition)): record.offset + 1
            for record in (delivery.record for delivery in deliveries)
        }

    async def positions(self, wanted: Collection[Position]) -> Offsets:
        """Where to go on reading, as the store knows it."""
        names = {self._name(position): position for position in wanted}
        stored = await self._read(names)
        found = dict.fromkeys(names.values(), FROM_FIRST) if self._misses_nothing else {}
        return found | {names[name]: offset for name, offset in stored.items()}

    async def pass_over(self, positions: Offsets) -> None:
        """Go on behind what retention removed."""
        await self._keep({self._name(p): at for p, at in positions.items()})

    def _name(self, position: Position) -> Position:
        if not self._log:
            return position
        return Position(f"{self._log}/{position.topic}", position.partition)


# A table of them is (topic, partition, next_offset) with the first two as its key. Offsets only
# grow: who has lost the partition may write late.
_READ = "SELECT topic, partition, next_offset FROM {0}"
_KEEP = (
    "INSERT INTO {0} VALUES ({1}) ON CONFLICT (topic, partition)"
    " DO UPDATE SET next_offset = {2}({0}.next_offset, excluded.next_offset)"
)


def read_sqlite(
    db: sqlite3.Connection, table: str, wanted: Collection[Position]
) -> dict[Position, int]:
    return _offsets(db.execute(_READ.format(table)).fetchall(), wanted)


def keep_sqlite(db: sqlite3.Connection, table: str, offsets: Offsets) -> None:
    db.executemany(_KEEP.format(table, "?, ?, ?", "max"), _rows(offsets))


async def read_postgres(db: Any, table: str, wanted: Collection[Position]) -> dict[Position, int]:
    return _offsets(await db.fetch(_READ.format(table)), wanted)


async def keep_postgres(db: Any, table: str, offsets: Offsets) -> None:
    await db.executemany(_KEEP.format(table, "$1, $2, $3", "greatest"), _rows(offsets))


def _offsets(rows: Sequence[Any], wanted: Collection[Position]) -> dict[Position, int]:
    found = {Position(row[0], row[1]): int(row[2]) for row in rows}
    return {position: found[position] for position in wanted if position in found}


def _rows(offsets: Offsets) -> list[tuple[str, int, int]]:
    """In one order for all writers, so that two of them cannot wait for each other."""
    return sorted((p.topic, p.partition, offset) for p, offset in offsets.items())
