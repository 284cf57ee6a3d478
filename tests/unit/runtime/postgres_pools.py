"""A store of one table, for what is tested of its pool."""

from __future__ import annotations

from assay_runtime.postgres import PostgresPool

FIRST = "CREATE TABLE t (n bigint PRIMARY KEY); INSERT INTO t VALUES (1)"


async def opened(url: str, *migrations: str) -> PostgresPool:
    pool = PostgresPool(url, migrations or (FIRST,), "store")
    await pool.open()
    return pool


async def count(pool: PostgresPool) -> int:
    async with pool.connection() as connection:
        return int(await connection.fetchval("SELECT count(*) FROM t"))
