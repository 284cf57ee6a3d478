"""The table of API keys in SQLite."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay_runtime.sqlite import SqliteFile
from services.ingest.adapters.key_rows import COLUMNS, key_of, values_of
from services.ingest.domain.api_keys import ApiKey

_MIGRATIONS = (
    """
    CREATE TABLE api_key (
      id TEXT PRIMARY KEY, digest BLOB NOT NULL, tenant TEXT NOT NULL, name TEXT NOT NULL,
      scopes TEXT NOT NULL, created_ms INTEGER NOT NULL, expires_ms INTEGER, revoked_ms INTEGER,
      last_used_ms INTEGER, per_minute INTEGER, burst INTEGER, concurrency INTEGER, replaces TEXT
    ) WITHOUT ROWID;
    CREATE TABLE api_key_revision (revision TEXT NOT NULL);
    INSERT INTO api_key_revision VALUES ('');
    """,
)


class SqliteKeys:
    """KeyStore in one file, which the service and the command may have open together."""

    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(path, _MIGRATIONS, "API keys")

    async def open(self) -> None:
        await self._file.open()

    async def close(self) -> None:
        await self._file.close()

    async def revision(self) -> str:
        def read(db: sqlite3.Connection) -> str:
            return str(db.execute("SELECT revision FROM api_key_revision").fetchone()[0])

        return await self._file.read(read)

    async def keys(self) -> Sequence[ApiKey]:
        def read(db: sqlite3.Connection) -> list[ApiKey]:
            rows = db.execute(f"SELECT {COLUMNS} FROM api_key ORDER BY created_ms DESC, id")
            return [key_of(row) for row in rows]

        return await self._file.read(read)

    async def add(self, key: ApiKey) -> None:
        await self._file.write(lambda db: _insert(db, key))

    async def rotate(self, old: ApiKey, successor: ApiKey) -> bool:
        def write(db: sqlite3.Connection) -> bool:
            changed = db.execute(
                "UPDATE api_key SET expires_ms = ? WHERE id = ? AND revoked_ms IS NULL"
                " AND (expires_ms IS NULL OR expires_ms >= ?)",
                (old.expires_ms, old.id, old.expires_ms),
            )
            if changed.rowcount == 1:
                _insert(db, successor)
            return changed.rowcount == 1

        return await self._file.write(write)

    async def revoke(self, key_id: str, now_ms: int) -> bool:
        def write(db: sqlite3.Connection) -> bool:
            changed = db.execute(
                "UPDATE api_key SET revoked_ms = coalesce(revoked_ms, ?) WHERE id = ?",
                (now_ms, key_id),
            )
            _revise(db)
            return changed.rowcount == 1

        return await self._file.write(write)

    async def touch(self, used_ms: Mapping[str, int]) -> None:
        def write(db: sqlite3.Connection) -> None:
            db.executemany(
                "UPDATE api_key SET last_used_ms = max(coalesce(last_used_ms, 0), ?) WHERE id = ?",
                [(used, key_id) for key_id, used in used_ms.items()],
            )

        await self._file.write(write)


def _insert(db: sqlite3.Connection, key: ApiKey) -> None:
    row = values_of(key)
    db.execute(f"INSERT INTO api_key ({COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)
    _revise(db)


def _revise(db: sqlite3.Connection) -> None:
    # Random, not counted: a restored backup must not repeat the number of another content.
    db.execute("UPDATE api_key_revision SET revision = ?", (secrets.token_hex(8),))
