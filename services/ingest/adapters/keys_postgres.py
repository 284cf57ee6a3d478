"""The table of API keys in PostgreSQL."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from assay_runtime.postgres import PostgresPool
from services.ingest.adapters.key_rows import COLUMNS, key_of, values_of
from services.ingest.domain.api_keys import ApiKey

_MIGRATIONS = (
    """
    CREATE TABLE api_key (
      id text PRIMARY KEY, digest bytea NOT NULL, tenant text NOT NULL, name text NOT NULL,
      scopes text NOT NULL, created_ms bigint NOT NULL, expires_ms bigint, revoked_ms bigint,
      last_used_ms bigint, per_minute int, burst int, concurrency int, replaces text);
    CREATE TABLE api_key_revision (revision text NOT NULL);
    INSERT INTO api_key_revision VALUES ('');
    """,
)


class PostgresKeys:
    """KeyStore in the database of the requests, with a row of its own in `schema_version`."""

    def __init__(self, url: str) -> None:
        self._pool = PostgresPool(url, _MIGRATIONS, "API keys")

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def revision(self) -> str:
        async with self._pool.connection() as db:
            return str(await db.fetchval("SELECT revision FROM api_key_revision"))

    async def keys(self) -> Sequence[ApiKey]:
        async with self._pool.connection() as db:
            rows = await db.fetch(f"SELECT {COLUMNS} FROM api_key ORDER BY created_ms DESC, id")
        return [key_of(row) for row in rows]

    async def add(self, key: ApiKey) -> None:
        async with self._pool.transaction() as db:
            await _insert(db, key)

    async def rotate(self, old: ApiKey, successor: ApiKey) -> bool:
        async with self._pool.transaction() as db:
            changed: str = await db.execute(
                "UPDATE api_key SET expires_ms = $1 WHERE id = $2 AND revoked_ms IS NULL"
                " AND (expires_ms IS NULL OR expires_ms >= $1)",
                old.expires_ms,
                old.id,
            )
            if changed == "UPDATE 1":
                await _insert(db, successor)
        return changed == "UPDATE 1"

    async def revoke(self, key_id: str, now_ms: int) -> bool:
        async with self._pool.transaction() as db:
            changed: str = await db.execute(
                "UPDATE api_key SET revoked_ms = coalesce(revoked_ms, $1) WHERE id = $2",
                now_ms,
                key_id,
            )
            await _revise(db)
        return changed == "UPDATE 1"

    async def touch(self, used_ms: Mapping[str, int]) -> None:
        # In one order for all replicas, so that two of them cannot wait for each other.
        async with self._pool.transaction() as db:
            await db.executemany(
                "UPDATE api_key SET last_used_ms = greatest(last_used_ms, $1) WHERE id = $2",
                [(used, key_id) for key_id, used in sorted(used_ms.items())],
            )


async def _insert(db: Any, key: ApiKey) -> None:
    row = values_of(key)
    places = ", ".join(f"${number}" for number in range(1, len(row) + 1))
    await db.execute(f"INSERT INTO api_key ({COLUMNS}) VALUES ({places})", *row)
    await _revise(db)


async def _revise(db: Any) -> None:
    # Random, not counted: a restored backup must not repeat the number of another content.
    await db.execute("UPDATE api_key_revision SET revision = $1", secrets.token_hex(8))
