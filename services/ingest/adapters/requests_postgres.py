"""The request table in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from assay_runtime.postgres import PostgresPool
from services.ingest.store import Ending, Known

_MIGRATIONS = (
    """
    CREATE TABLE request (
      request_id text PRIMARY KEY, content_sha256 text, status text NOT NULL,
      accepted bytea, outcome bytea, touched_ms bigint NOT NULL);
    CREATE INDEX request_touched ON request (touched_ms);
    """,
)
_COLUMNS = "request_id, content_sha256, status, accepted, outcome"
_WITHOUT_ACCEPTED = "request_id, content_sha256, status, NULL, outcome"


class PostgresRequests:
    """RequestStore in one database."""

    def __init__(self, url: str) -> None:
        self._pool = PostgresPool(url, _MIGRATIONS, "requests")

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def announce(self, request_id: str, content_sha256: str, now_ms: int) -> Known:
        async with self._pool.transaction() as db:
            await db.execute(
                "INSERT INTO request VALUES ($1, $2, 'pending', NULL, NULL, $3)"
                " ON CONFLICT (request_id) DO UPDATE SET"
                " content_sha256 = coalesce(request.content_sha256, excluded.content_sha256)",
                request_id,
                content_sha256,
                now_ms,
            )
            return await _get(db, request_id, _WITHOUT_ACCEPTED)

    async def reopen(self, request_id: str) -> None:
        async with self._pool.transaction() as db:
            await db.execute(
                "UPDATE request SET status = 'pending', outcome = NULL"
                " WHERE request_id = $1 AND status = 'dead_lettered' AND accepted IS NULL",
                request_id,
            )

    async def accept(
        self, request_id: str, content_sha256: str, accepted: bytes, now_ms: int
    ) -> Known:
        async with self._pool.transaction() as db:
            await db.execute(
                "INSERT INTO request VALUES ($1, $2, 'pending', $3, NULL, $4)"
                " ON CONFLICT (request_id) DO UPDATE SET accepted = excluded.accepted,"
                " content_sha256 = excluded.content_sha256, touched_ms = excluded.touched_ms,"
                " status = 'pending', outcome = NULL WHERE request.accepted IS NULL"
                " AND request.status IN ('pending', 'dead_lettered') AND"
                " coalesce(request.content_sha256, excluded.content_sha256)"
                " = excluded.content_sha256",
                request_id,
                content_sha256,
                accepted,
                now_ms,
            )
            return await _get(db, request_id, _COLUMNS)

    async def conclude(self, endings: Sequence[Ending], now_ms: int) -> None:
        # In one order for all replicas, so that two of them cannot wait for each other.
        ordered = sorted(endings, key=lambda ending: ending.request_id)
        async with self._pool.transaction() as db:
            await db.executemany(
                "INSERT INTO request VALUES ($1, NULL, $2, NULL, $3, $4)"
                " ON CONFLICT (request_id) DO UPDATE SET status = excluded.status,"
                " outcome = excluded.outcome, touched_ms = excluded.touched_ms, accepted ="
                " CASE excluded.status WHEN 'dead_lettered' THEN request.accepted END"
                " WHERE request.outcome IS NULL"
                " OR (excluded.status = 'signed' AND request.status <> 'signed')",
                [(e.request_id, e.status, e.outcome, now_ms) for e in ordered],
            )

    async def get(self, request_id: str) -> Known | None:
        async with self._pool.connection() as db:
            return await _found(db, request_id, _COLUMNS)

    async def status(self, request_id: str) -> Known | None:
        async with self._pool.connection() as db:
            return await _found(db, request_id, _WITHOUT_ACCEPTED)

    async def endings(self, request_ids: Collection[str]) -> list[Known]:
        async with self._pool.connection() as db:
            rows = await db.fetch(
                "SELECT request_id, NULL, status, NULL, outcome FROM request"
                " WHERE outcome IS NOT NULL AND request_id = ANY($1::text[])",
                list(request_ids),
            )
        return [Known(*row) for row in rows]

    async def forget(self, before_ms: int) -> int:
        async with self._pool.transaction() as db:
            done: str = await db.execute("DELETE FROM request WHERE touched_ms < $1", before_ms)
        return int(done.rpartition(" ")[2])


async def _found(db: Any, request_id: str, columns: str) -> Known | None:
    row = await db.fetchrow(f"SELECT {columns} FROM request WHERE request_id = $1", request_id)
    return Known(*row) if row else None


async def _get(db: Any, request_id: str, columns: str) -> Known:
    found = await _found(db, request_id, columns)
    assert found is not None  # noqa: S101 - written a statement ago
    return found
