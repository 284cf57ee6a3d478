"""The request table in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from assay_runtime.postgres import PostgresPool
from assay_runtime.records import Position
from assay_runtime.stored_offsets import keep_postgres, read_postgres
from services.ingest.store import NO_POSITIONS, Ending, Known, Owner

_MIGRATIONS = (
    """
    CREATE TABLE request (
      request_id text PRIMARY KEY, content_sha256 text, status text NOT NULL,
      accepted bytea, outcome bytea, touched_ms bigint NOT NULL);
    CREATE INDEX request_touched ON request (touched_ms);
    """,
    """
    ALTER TABLE request ADD COLUMN tenant text, ADD COLUMN process text,
      ADD COLUMN published boolean NOT NULL DEFAULT false;
    CREATE TABLE process_version (
      id text NOT NULL, version text NOT NULL, hash text NOT NULL, first_used_ms bigint NOT NULL,
      PRIMARY KEY (id, version));
    """,
    """
    CREATE TABLE request_consumed (
      topic text NOT NULL, partition int NOT NULL, next_offset bigint NOT NULL,
      PRIMARY KEY (topic, partition));
    """,
)
_COLUMNS = "request_id, content_sha256, status, accepted, outcome, tenant, process, published"
_WITHOUT_ACCEPTED = _COLUMNS.replace("accepted", "NULL")


class PostgresRequests:
    """RequestStore in one database."""

    def __init__(self, url: str) -> None:
        self._pool = PostgresPool(url, _MIGRATIONS, "requests")

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def watch(self) -> None:
        await self._pool.watch()

    async def announce(
        self, request_id: str, content_sha256: str, now_ms: int, owner: Owner | None = None
    ) -> Known:
        async with self._pool.transaction() as db:
            await db.execute(
                "INSERT INTO request VALUES ($1, $2, 'pending', NULL, NULL, $3, $4, $5, false)"
                " ON CONFLICT (request_id) DO UPDATE SET"
                " content_sha256 = coalesce(request.content_sha256, excluded.content_sha256),"
                " tenant = coalesce(request.tenant, excluded.tenant),"
                " process = coalesce(request.process, excluded.process)",
                request_id,
                content_sha256,
                now_ms,
                owner.tenant if owner else None,
                owner.process if owner else None,
            )
            return await _get(db, request_id, _WITHOUT_ACCEPTED)

    async def published(self, request_id: str) -> None:
        async with self._pool.transaction() as db:
            await db.execute(
                "UPDATE request SET published = true WHERE request_id = $1", request_id
            )

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
                "INSERT INTO request (request_id, content_sha256, status, accepted, touched_ms)"
                " VALUES ($1, $2, 'pending', $3, $4)"
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

    async def conclude(
        self,
        endings: Sequence[Ending],
        now_ms: int,
        positions: Mapping[Position, int] = NO_POSITIONS,
    ) -> None:
        # In one order for all replicas, so that two of them cannot wait for each other.
        ordered = sorted(endings, key=lambda ending: ending.request_id)
        async with self._pool.transaction() as db:
            await db.executemany(
                "INSERT INTO request (request_id, status, outcome, touched_ms)"
                " SELECT $1, $2, $3, $4 WHERE NOT $5::boolean OR EXISTS"
                " (SELECT FROM request WHERE request_id = $1 AND tenant IS NOT NULL)"
                " ON CONFLICT (request_id) DO UPDATE SET status = excluded.status,"
                " outcome = excluded.outcome, touched_ms = excluded.touched_ms, accepted ="
                " CASE excluded.status WHEN 'dead_lettered' THEN request.accepted END"
                " WHERE request.outcome IS NULL OR (excluded.status IN ('signed', 'accepted')"
                " AND request.status NOT IN ('signed', 'accepted'))"
                " OR (excluded.status = 'rejected' AND request.status = 'dead_lettered')",
                [(e.request_id, e.status, e.outcome, now_ms, e.owned_only) for e in ordered],
            )
            await keep_postgres(db, "request_consumed", positions)

    async def positions(self, wanted: Collection[Position]) -> dict[Position, int]:
        async with self._pool.connection() as db:
            return await read_postgres(db, "request_consumed", wanted)

    async def get(self, request_id: str) -> Known | None:
        async with self._pool.connection() as db:
            return await _found(db, request_id, _COLUMNS)

    async def status(self, request_id: str) -> Known | None:
        async with self._pool.connection() as db:
            return await _found(db, request_id, _WITHOUT_ACCEPTED)

    async def endings(self, request_ids: Collection[str]) -> list[Known]:
        async with self._pool.connection() as db:
            rows = await db.fetch(
                f"SELECT {_WITHOUT_ACCEPTED} FROM request"
                " WHERE outcome IS NOT NULL AND request_id = ANY($1::text[])",
                list(request_ids),
            )
        return [Known.of_row(*row) for row in rows]

    async def forget(self, before_ms: int) -> int:
        async with self._pool.transaction() as db:
            done: str = await db.execute("DELETE FROM request WHERE touched_ms < $1", before_ms)
        return int(done.rpartition(" ")[2])

    async def used_versions(self) -> Mapping[tuple[str, str], str]:
        async with self._pool.connection() as db:
            rows = await db.fetch("SELECT id, version, hash FROM process_version")
        return {(row["id"], row["version"]): row["hash"] for row in rows}

    async def use_versions(self, hashes: Mapping[tuple[str, str], str], now_ms: int) -> None:
        async with self._pool.transaction() as db:
            await db.executemany(
                "INSERT INTO process_version VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
                [(*version, hash_, now_ms) for version, hash_ in sorted(hashes.items())],
            )


async def _found(db: Any, request_id: str, columns: str) -> Known | None:
    row = await db.fetchrow(f"SELECT {columns} FROM request WHERE request_id = $1", request_id)
    return Known.of_row(*row) if row else None


async def _get(db: Any, request_id: str, columns: str) -> Known:
    found = await _found(db, request_id, columns)
    assert found is not None  # noqa: S101 - written a statement ago
    return found
