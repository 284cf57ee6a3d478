"""Evidence in PostgreSQL."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

from assay_runtime.postgres import PostgresPool
from assay_runtime.records import Position
from assay_runtime.stored_offsets import keep_postgres, read_postgres
from services.evidence.adapters.evidence_rows import (
    COLUMNS,
    COMPARED,
    ERASE_AT_ONCE,
    conditions,
    erasure_conditions,
    kept_of,
    row_of,
    values_of,
)
from services.evidence.adapters.migrations_postgres import MIGRATIONS
from services.evidence.adapters.older_rows import Found, older_ids
from services.evidence.adapters.older_rows_postgres import look_older
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

# Any number that no other lock of this database has.
_WRITERS = 7_214_001


class PostgresEvidence:
    """EvidenceStore in one database."""

    def __init__(self, url: str) -> None:
        self._pool = PostgresPool(url, MIGRATIONS, "evidence")

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def watch(self) -> None:
        await self._pool.watch()

    async def append(
        self, entries: Sequence[Entry], positions: Mapping[Position, int]
    ) -> list[Row]:
        async with self._pool.transaction() as db:
            rows = await _append(db, entries)
            await keep_postgres(db, "evidence_consumed", positions)
        return rows

    async def positions(self, wanted: Collection[Position]) -> dict[Position, int]:
        async with self._pool.connection() as db:
            return await read_postgres(db, "evidence_consumed", wanted)

    async def query(self, query: Query, after: int, limit: int, max_bytes: int) -> Page:
        where, values = conditions(query, after)
        async with self._pool.connection() as db:
            sizes = await db.fetch(
                "SELECT id, coalesce(octet_length(value), 0) + octet_length(headers) FROM evidence"
                f" WHERE {_numbered(where)} ORDER BY id LIMIT ${len(values) + 1}",
                *values,
                limit + 1,
            )
            ids, more = page_of([(row[0], row[1]) for row in sizes], limit, max_bytes)
            rows = await db.fetch(
                f"SELECT id, {', '.join(COLUMNS)}, erased_by FROM evidence"
                " WHERE id = ANY($1::bigint[]) ORDER BY id",
                ids,
            )
        return Page([row_of(row) for row in rows], ids[-1] if more else None)

    async def values(self, event_ids: Collection[str]) -> dict[str, bytes]:
        async with self._pool.connection() as db:
            found = await _stored(db, list(event_ids))
        return {name: kept.value for name, kept in found.items() if kept.value is not None}

    async def erasable(self, erasure: Erasure) -> int:
        where, values = erasure_conditions(erasure)
        async with self._pool.connection() as db:
            count = await db.fetchval(
                f"SELECT count(*) FROM evidence WHERE erased_by IS NULL AND {_numbered(where)}",
                *values,
            )
        return int(count) + len({row_id async for ids in self._older(erasure) for row_id in ids})

    async def erase(self, erasure: Erasure) -> Erased:
        done: list[Erased] = []
        while (found := await self._erase_some(erasure)).rows:
            done.append(found)
        done += [
            await self._erase(erasure, "id = ANY($1::bigint[])", ids)
            async for ids in self._older(erasure)
        ]
        return Erased.in_all(done)

    def _older(self, erasure: Erasure) -> AsyncIterator[list[int]]:
        return older_ids(erasure, self._look_older)

    async def _look_older(self, wallet: str, after: int) -> Found:
        async with self._pool.transaction() as db:
            return await look_older(wallet, after, db)

    async def _erase_some(self, erasure: Erasure) -> Erased:
        """The first of what is left."""
        where, values = erasure_conditions(erasure)
        first = f"{_numbered(where)} ORDER BY id LIMIT {ERASE_AT_ONCE}"
        return await self._erase(erasure, first, *values)

    async def _erase(self, erasure: Erasure, where: str, *values: object) -> Erased:
        async with self._pool.transaction() as db:
            await _take_turn(db)
            found = await db.fetch(
                "SELECT id, event_id, shard, seq, leaf_hash FROM evidence WHERE erased_by IS NULL"
                f" AND {where}",
                *values,
            )
            if not found:
                return Erased(0, ())
            rows = [Erasable(*row) for row in found]
            entries = erasure_entries(erasure, rows)
            await _append(db, list(entries.values()))
            await db.executemany(
                "UPDATE evidence SET value = NULL, salt = NULL, headers = '', erased_by = $1"
                " WHERE id = $2",
                [(entries[row.shard].event_id, row.id) for row in rows],
            )
        return Erased(len(rows), tuple(entry.event_id for entry in entries.values()))


async def _take_turn(db: Any) -> None:
    """Writers take turns: ids must become visible in their order, or a reader that pages by id
    would never see a row that was committed late."""
    await db.execute("SELECT pg_advisory_xact_lock($1)", _WRITERS)


async def _append(db: Any, entries: Sequence[Entry]) -> list[Row]:
    await _take_turn(db)
    shards = sorted({entry.partition for entry in entries})
    known = await db.fetch(
        "SELECT shard, next_seq FROM evidence_shard WHERE shard = ANY($1::int[])", shards
    )
    stored: dict[str, Kept | None] = {}
    while ids := unknown(entries, stored):
        stored |= dict.fromkeys(ids) | await _stored(db, ids)
    rows = plan(entries, stored, dict(known), lambda: secrets.token_bytes(SALT_BYTES))
    await db.copy_records_to_table(
        "evidence",
        records=[values_of(row) for row in rows],
        columns=[name.strip('"') for name in COLUMNS],
    )
    await db.executemany(
        "INSERT INTO evidence_shard VALUES ($1, $2)"
        " ON CONFLICT (shard) DO UPDATE SET next_seq = excluded.next_seq",
        sorted({row.shard: row.seq + 1 for row in rows}.items()),
    )
    return rows


async def _stored(db: Any, ids: Sequence[str]) -> dict[str, Kept]:
    rows = await db.fetch(
        f"SELECT event_id, {', '.join(COMPARED)} FROM evidence WHERE event_id = ANY($1)", ids
    )
    return {row[0]: kept_of(*row[1:]) for row in rows}


def _numbered(where: Sequence[str]) -> str:
    return " AND ".join(f"{part} ${number}" for number, part in enumerate(where, 1))
