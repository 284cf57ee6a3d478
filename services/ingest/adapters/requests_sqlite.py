"""The request table in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from assay_runtime.records import Position
from assay_runtime.sqlite import SqliteFile
from assay_runtime.stored_offsets import keep_sqlite, read_sqlite
from services.ingest.store import NO_POSITIONS, Ending, Known, Owner

_MIGRATIONS = (
    """
    CREATE TABLE request (
      request_id TEXT PRIMARY KEY, content_sha256 TEXT, status TEXT NOT NULL,
      accepted BLOB, outcome BLOB, touched_ms INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX request_touched ON request (touched_ms);
    """,
    """
    ALTER TABLE request ADD COLUMN tenant TEXT;
    ALTER TABLE request ADD COLUMN process TEXT;
    ALTER TABLE request ADD COLUMN published INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE process_version (
      id TEXT NOT NULL, version TEXT NOT NULL, hash TEXT NOT NULL, first_used_ms INTEGER NOT NULL,
      PRIMARY KEY (id, version)) WITHOUT ROWID;
    """,
    """
    CREATE TABLE consumed (
      topic TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
      PRIMARY KEY (topic, partition)) WITHOUT ROWID;
    """,
)
_COLUMNS = "request_id, content_sha256, status, accepted, outcome, tenant, process, published"
_WITHOUT_ACCEPTED = _COLUMNS.replace("accepted", "NULL")
_LOOK_UP = 500


class SqliteRequests:
    """RequestStore in one file; replicas on one machine may share it."""

    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(path, _MIGRATIONS, "requests")

    async def open(self) -> None:
        await self._file.open()

    async def close(self) -> None:
        await self._file.close()

    async def announce(
        self, request_id: str, content_sha256: str, now_ms: int, owner: Owner | None = None
    ) -> Known:
        tenant, process = (owner.tenant, owner.process) if owner else (None, None)

        def write(db: sqlite3.Connection) -> Known:
            db.execute(
                "INSERT INTO request VALUES (?, ?, 'pending', NULL, NULL, ?, ?, ?, 0)"
                " ON CONFLICT (request_id) DO UPDATE SET"
                " content_sha256 = coalesce(content_sha256, excluded.content_sha256),"
                " tenant = coalesce(tenant, excluded.tenant),"
                " process = coalesce(process, excluded.process)",
                (request_id, content_sha256, now_ms, tenant, process),
            )
            return _get(db, request_id, _WITHOUT_ACCEPTED)

        return await self._file.write(write)

    async def published(self, request_id: str) -> None:
        await self._file.write(
            lambda db: db.execute(
                "UPDATE request SET published = 1 WHERE request_id = ?", (request_id,)
            )
        )

    async def reopen(self, request_id: str) -> None:
        await self._file.write(
            lambda db: db.execute(
                "UPDATE request SET status = 'pending', outcome = NULL"
                " WHERE request_id = ? AND status = 'dead_lettered' AND accepted IS NULL",
                (request_id,),
            )
        )

    async def accept(
        self, request_id: str, content_sha256: str, accepted: bytes, now_ms: int
    ) -> Known:
        def write(db: sqlite3.Connection) -> Known:
            db.execute(
                "INSERT INTO request (request_id, content_sha256, status, accepted, touched_ms)"
                " VALUES (?, ?, 'pending', ?, ?)"
                " ON CONFLICT (request_id) DO UPDATE SET accepted = excluded.accepted,"
                " content_sha256 = excluded.content_sha256, touched_ms = excluded.touched_ms,"
                " status = 'pending', outcome = NULL"
                " WHERE accepted IS NULL AND status IN ('pending', 'dead_lettered')"
                " AND coalesce(content_sha256, excluded.content_sha256) = excluded.content_sha256",
                (request_id, content_sha256, accepted, now_ms),
            )
            return _get(db, request_id, _COLUMNS)

        return await self._file.write(write)

    async def conclude(
        self,
        endings: Sequence[Ending],
        now_ms: int,
        positions: Mapping[Position, int] = NO_POSITIONS,
    ) -> None:
        def write(db: sqlite3.Connection) -> None:
            db.executemany(
                "INSERT INTO request (request_id, status, outcome, touched_ms)"
                " SELECT ?1, ?2, ?3, ?4 WHERE NOT ?5 OR EXISTS"
                " (SELECT 1 FROM request WHERE request_id = ?1 AND tenant IS NOT NULL)"
                " ON CONFLICT (request_id) DO UPDATE SET status = excluded.status,"
                " outcome = excluded.outcome, touched_ms = excluded.touched_ms,"
                " accepted = CASE excluded.status WHEN 'dead_lettered' THEN accepted END"
                " WHERE outcome IS NULL OR (excluded.status IN ('signed', 'accepted')"
                " AND status NOT IN ('signed', 'accepted'))"
                " OR (excluded.status = 'rejected' AND status = 'dead_lettered')",
                [(e.request_id, e.status, e.outcome, now_ms, e.owned_only) for e in endings],
            )
            keep_sqlite(db, "consumed", positions)

        await self._file.write(write)

    async def positions(self, wanted: Collection[Position]) -> dict[Position, int]:
        return await self._file.read(lambda db: read_sqlite(db, "consumed", wanted))

    async def get(self, request_id: str) -> Known | None:
        return await self._file.read(lambda db: _found(db, request_id, _COLUMNS))

    async def status(self, request_id: str) -> Known | None:
        return await self._file.read(lambda db: _found(db, request_id, _WITHOUT_ACCEPTED))

    async def endings(self, request_ids: Collection[str]) -> list[Known]:
        def read(db: sqlite3.Connection) -> list[Known]:
            wanted, found = list(request_ids), []
            for start in range(0, len(wanted), _LOOK_UP):
                some = wanted[start : start + _LOOK_UP]
                found += db.execute(
                    f"SELECT {_WITHOUT_ACCEPTED} FROM request"
                    f" WHERE outcome IS NOT NULL AND request_id IN ({', '.join('?' * len(some))})",
                    some,
                ).fetchall()
            return [Known.of_row(*row) for row in found]

        return await self._file.read(read)

    async def forget(self, before_ms: int) -> int:
        return await self._file.write(
            lambda db: db.execute("DELETE FROM request WHERE touched_ms < ?", (before_ms,)).rowcount
        )

    async def used_versions(self) -> Mapping[tuple[str, str], str]:
        rows = await self._file.read(
            lambda db: db.execute("SELECT id, version, hash FROM process_version").fetchall()
        )
        return {(process, version): hash_ for process, version, hash_ in rows}

    async def use_versions(self, hashes: Mapping[tuple[str, str], str], now_ms: int) -> None:
        rows = [(*version, hash_, now_ms) for version, hash_ in hashes.items()]
        await self._file.write(
            lambda db: db.executemany(
                "INSERT OR IGNORE INTO process_version VALUES (?, ?, ?, ?)", rows
            )
        )


def _found(db: sqlite3.Connection, request_id: str, columns: str) -> Known | None:
    row = db.execute(f"SELECT {columns} FROM request WHERE request_id = ?", (request_id,))
    return Known.of_row(*found) if (found := row.fetchone()) else None


def _get(db: sqlite3.Connection, request_id: str, columns: str) -> Known:
    found = _found(db, request_id, columns)
    assert found is not None  # noqa: S101 - written a statement ago
    return found
