"""Evidence in SQLite."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from assay_runtime.records import Position
from assay_runtime.sqlite import SqliteFile
from assay_runtime.stored_offsets import keep_sqlite, read_sqlite
from services.evidence.adapters.evidence_rows import (
    COLUMNS,
    COMPARED,
    ERASE_AT_ONCE,
    conditions,
    erasure_conditions,
    in_parts,
    kept_of,
    row_of,
    values_of,
)
from services.evidence.adapters.migrations_sqlite import MIGRATIONS
from services.evidence.adapters.older_rows import older_ids
from services.evidence.adapters.older_rows_sqlite import look_older
from services.evidence.domain import (
    SALT_BYTES,
    Entry,
    Kept,
    Row,
    plan,
    unknown,
)
from services.evidence.domain.erasure import Erasable, Erased, Erasure, erasure_entries
from services.evidence.store import Page, Query, page_of

log = structlog.get_logger()

_COLUMNS = ", ".join(COLUMNS)
_COMPARED = ", ".join(COMPARED)


class SqliteEvidence:
    """EvidenceStore in one file."""

    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(path, MIGRATIONS, "evidence")

    async def open(self) -> None:
        await self._file.open()
        # What is erased is overwritten with zeros and does not wait in a free page.
        await self._file.read(lambda db: db.execute("PRAGMA secure_delete=ON").fetchall())

    async def close(self) -> None:
        await self._file.close()

    async def append(
        self, entries: Sequence[Entry], positions: Mapping[Position, int]
    ) -> list[Row]:
        def write(db: sqlite3.Connection) -> list[Row]:
            rows = _append(db, entries)
            keep_sqlite(db, "consumed", positions)
            return rows

        return await self._file.write(write)

    async def positions(self, wanted: Collection[Position]) -> dict[Position, int]:
        return await self._file.read(lambda db: read_sqlite(db, "consumed", wanted))

    async def query(self, query: Query, after: int, limit: int, max_bytes: int) -> Page:
        where, values = conditions(query, after)
        sizes_sql = (
            "SELECT id, coalesce(length(value), 0) + length(headers) FROM evidence"
            f" WHERE {' AND '.join(f'{part} ?' for part in where)} ORDER BY id LIMIT ?"
        )

        def read(db: sqlite3.Connection) -> Page:
            sizes = db.execute(sizes_sql, [*values, limit + 1]).fetchall()
            ids, more = page_of(sizes, limit, max_bytes)
            row_sql = f"SELECT id, {_COLUMNS}, erased_by FROM evidence WHERE id = ?"
            rows = [row_of(db.execute(row_sql, (row_id,)).fetchone()) for row_id in ids]
            return Page(rows, ids[-1] if more else None)

        return await self._file.read(read)

    async def values(self, event_ids: Collection[str]) -> dict[str, bytes]:
        found = await self._file.read(lambda db: _stored(db, event_ids))
        return {name: kept.value for name, kept in found.items() if kept.value is not None}

    async def erasable(self, erasure: Erasure) -> int:
        where, values = erasure_conditions(erasure)
        sql = (
            "SELECT count(*) FROM evidence WHERE erased_by IS NULL"
            f" AND {' AND '.join(f'{part} ?' for part in where)}"
        )
        count = int(await self._file.read(lambda db: db.execute(sql, values).fetchone()[0]))
        return count + len({row_id async for ids in self._older(erasure) for row_id in ids})

    async def erase(self, erasure: Erasure) -> Erased:
        done: list[Erased] = []
        while (found := await self._file.write(lambda db: _erase_some(db, erasure))).rows:
            done.append(found)
        done += [
            await self._file.write(partial(_erase_ids, erasure, ids))
            async for ids in self._older(erasure)
        ]
        # The log of the file still holds the text until it is written back and cut off.
        busy = await self._file.read(
            lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        )
        if busy:
            log.warning("erased_text_still_in_wal", hint="another program reads the file")
        return Erased.in_all(done)

    def _older(self, erasure: Erasure) -> AsyncIterator[list[int]]:
        return older_ids(
            erasure, lambda wallet, after: self._file.read(partial(look_older, wallet, after))
        )


def _append(db: sqlite3.Connection, entries: Sequence[Entry]) -> list[Row]:
    stored: dict[str, Kept | None] = {}
    while ids := unknown(entries, stored):
        stored |= dict.fromkeys(ids) | _stored(db, ids)
    next_seq = _next_seq(db, {entry.partition for entry in entries})
    rows = plan(entries, stored, next_seq, lambda: secrets.token_bytes(SALT_BYTES))
    db.executemany(
        f"INSERT INTO evidence ({_COLUMNS}) VALUES (?{', ?' * (len(COLUMNS) - 1)})",
        [values_of(row) for row in rows],
    )
    return rows


def _erase_some(db: sqlite3.Connection, erasure: Erasure) -> Erased:
    """The first of what is left."""
    where, values = erasure_conditions(erasure)
    first = f"{' AND '.join(f'{part} ?' for part in where)} ORDER BY id LIMIT {ERASE_AT_ONCE}"
    return _erase(db, erasure, first, values)


def _erase_ids(erasure: Erasure, ids: Sequence[int], db: sqlite3.Connection) -> Erased:
    return _erase(db, erasure, f"id IN ({', '.join('?' * len(ids))})", ids)


def _erase(db: sqlite3.Connection, erasure: Erasure, where: str, values: Sequence[Any]) -> Erased:
    found = db.execute(
        "SELECT id, event_id, shard, seq, leaf_hash FROM evidence WHERE erased_by IS NULL"
        f" AND {where}",
        values,
    ).fetchall()
    if not found:
        return Erased(0, ())
    rows = [Erasable(*row) for row in found]
    entries = erasure_entries(erasure, rows)
    _append(db, list(entries.values()))
    db.executemany(
        "UPDATE evidence SET value = NULL, salt = NULL, headers = x'', erased_by = ? WHERE id = ?",
        [(entries[row.shard].event_id, row.id) for row in rows],
    )
    return Erased(len(rows), tuple(entry.event_id for entry in entries.values()))


def _next_seq(db: sqlite3.Connection, shards: set[int]) -> dict[int, int]:
    sql = "SELECT coalesce(max(seq) + 1, 0) FROM evidence WHERE shard = ?"
    return {shard: db.execute(sql, (shard,)).fetchone()[0] for shard in shards}


def _stored(db: sqlite3.Connection, ids: Collection[str]) -> dict[str, Kept]:
    found: dict[str, Kept] = {}
    for some in in_parts(ids):
        marks = ", ".join("?" * len(some))
        sql = f"SELECT event_id, {_COMPARED} FROM evidence WHERE event_id IN ({marks})"
        found.update((row[0], kept_of(*row[1:])) for row in db.execute(sql, some))
    return found
