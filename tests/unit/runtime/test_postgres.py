"""PostgresPool on a real server: outages are Pause, mistakes are not (DESIGN §3)."""

from __future__ import annotations

import asyncio
import contextlib

import asyncpg
import pytest

from assay_runtime import postgres
from assay_runtime.failures import Pause
from assay_runtime.postgres import PostgresPool
from assay_runtime.settings import SettingsError
from deploy.kafka.postgres_server import PostgresServer
from deploy.loopback_ports import free_port
from tests.unit.runtime.postgres_pools import FIRST, count, opened

SECOND = "ALTER TABLE t ADD COLUMN more text"


async def test_replicas_that_migrate_at_once(postgres_url: str) -> None:
    """Each migration runs once, whoever comes first."""
    pools = await asyncio.gather(*(opened(postgres_url, FIRST, SECOND) for _ in range(5)))
    assert [await count(pool) for pool in pools] == [1] * 5
    await asyncio.gather(*(pool.close() for pool in pools))


async def test_newer_tables_are_refused(postgres_url: str) -> None:
    await (await opened(postgres_url, FIRST, SECOND)).close()
    with pytest.raises(SettingsError, match=r"newer version \(2\)"):
        await opened(postgres_url, FIRST)


async def test_two_uses_of_one_database_count_apart(postgres_url: str) -> None:
    first = await opened(postgres_url)
    other = PostgresPool(postgres_url, ("CREATE TABLE u (n int)",), "other")
    await other.open()
    assert await count(first) == 1
    await first.close()
    await other.close()


async def test_a_transaction_is_all_or_nothing(postgres_url: str) -> None:
    pool = await opened(postgres_url)

    async def half() -> None:
        async with pool.transaction() as connection:
            await connection.execute("INSERT INTO t VALUES (2)")
            raise KeyError

    with pytest.raises(KeyError):
        await half()
    assert await count(pool) == 1
    await pool.close()


async def test_server_gone_and_back(disposable_postgres: PostgresServer) -> None:
    """Pause while it is away, also for what was under way; the same pool works afterwards."""
    url = disposable_postgres.create_database("outage")
    pool = await opened(url)
    with contextlib.suppress(Pause):  # giving back what was cut may be noticed or not
        async with pool.connection() as held:
            await held.fetchval("SELECT 1")
            await asyncio.to_thread(disposable_postgres.kill)
    with pytest.raises(Pause, match="store: PostgreSQL"):
        await count(pool)
    with pytest.raises(Pause):
        await opened(url)
    await asyncio.to_thread(disposable_postgres.start)
    assert await count(pool) == 1
    await pool.close()


@pytest.mark.parametrize("missing", ["database", "right", "entrance"])
async def test_what_is_restored_or_locked_away_is_an_outage(
    disposable_postgres: PostgresServer, missing: str
) -> None:
    """While a service runs: an operator's act, so no record may be dead-lettered for it."""
    url = disposable_postgres.create_database("restored")
    pool = await opened(url)
    admin = await asyncpg.connect(url.rpartition("/")[0] + "/postgres")
    if missing == "database":
        await admin.execute("DROP DATABASE restored WITH (FORCE)")
        with pytest.raises(Pause):
            await count(pool)  # by the connection that was cut
    elif missing == "entrance":
        await admin.execute(
            "ALTER DATABASE restored ALLOW_CONNECTIONS false; SELECT pg_terminate_backend(pid)"
            " FROM pg_stat_activity WHERE datname = 'restored'"
        )
        with pytest.raises(Pause):
            await count(pool)  # by the connection that was cut
        with pytest.raises(Pause, match="not currently accepting connections"):
            await opened(url)
    else:
        await admin.execute("CREATE ROLE reader LOGIN")
        await pool.close()
        own = await asyncpg.connect(url)
        await own.execute("GRANT ALL ON SCHEMA public TO reader; GRANT ALL ON t TO reader")
        await own.execute("ALTER TABLE schema_version OWNER TO reader")
        parts = url.partition("://")[2].partition("@")
        pool = await opened(f"postgresql://reader@{parts[2]}")
        assert await count(pool) == 1
        await own.execute("REVOKE ALL ON t FROM reader")
        await own.close()
    with pytest.raises(Pause, match="store: PostgreSQL"):
        await count(pool)
    await admin.close()
    await pool.close()


async def test_who_waits_for_a_silent_server_can_be_cancelled(
    disposable_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Pause that took the cancellation's place would be suppressed, and waited out for ever."""
    monkeypatch.setattr(postgres, "_COMMAND_S", 1.0)
    monkeypatch.setattr(postgres, "_ACQUIRE_S", 0.5)
    pool = await opened(disposable_postgres.create_database("silent"))

    async def again_and_again() -> None:
        while True:
            with contextlib.suppress(Pause):
                async with pool.transaction() as connection:
                    await connection.fetchval("SELECT 1")

    working = asyncio.create_task(again_and_again())
    await asyncio.sleep(0.2)
    with disposable_postgres.silent():
        await asyncio.sleep(0.2)
        working.cancel()
        done, _ = await asyncio.wait([working], timeout=20)
    assert done
    assert working.cancelled()
    await pool.close()


async def test_absent_server_is_an_outage_and_bad_credentials_a_setting(postgres_url: str) -> None:
    """One is waited for, the other would be waited for in vain."""
    with pytest.raises(Pause):
        await opened(f"postgresql://u@127.0.0.1:{free_port()}/x")
    with pytest.raises(SettingsError, match="does not exist"):
        await opened(postgres_url.rpartition("/")[0] + "/no_such_database")
    with pytest.raises(SettingsError, match="store"):
        await opened("postgresql://127.0.0.1:not-a-port/x")


async def test_mistakes_and_conflicts_are_told_apart(postgres_url: str) -> None:
    """A value that does not fit blames its record; a deadlock blames nobody."""
    pool = await opened(postgres_url)
    with pytest.raises(asyncpg.DataError):
        async with pool.connection() as connection:
            await connection.execute("INSERT INTO t VALUES ($1)", 2**70)
    with pytest.raises(asyncpg.UniqueViolationError):
        async with pool.connection() as connection:
            await connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(asyncpg.UndefinedTableError):
        async with pool.connection() as connection:
            await connection.execute("SELECT * FROM missing")
    await pool.close()


async def test_a_deadlock_is_tried_again(postgres_url: str) -> None:
    pool = await opened(postgres_url)
    async with pool.connection() as connection:
        await connection.execute("INSERT INTO t VALUES (2)")
    met = asyncio.Barrier(2)

    async def update(first: int, second: int) -> None:
        async with pool.transaction() as connection:
            await connection.execute("UPDATE t SET n = n WHERE n = $1", first)
            await met.wait()
            await connection.execute("UPDATE t SET n = n WHERE n = $1", second)

    ended = await asyncio.gather(update(1, 2), update(2, 1), return_exceptions=True)
    assert sorted(type(e) for e in ended if e) == [Pause]
    await pool.close()


async def test_a_failed_open_leaves_no_connection_behind(postgres_url: str) -> None:
    """`opened` opens again and again; the server's connections are counted."""
    bad = PostgresPool(postgres_url, ("SELECT pg_terminate_backend(pg_backend_pid())",), "bad")
    for _ in range(3):
        with pytest.raises(Pause):
            await bad.open()
    watcher = await asyncpg.connect(postgres_url)
    async with asyncio.timeout(10):
        while (
            await watcher.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        ) != 0:
            await asyncio.sleep(0.05)
    await watcher.close()
