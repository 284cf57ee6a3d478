"""A server that forgot commits is noticed before anything is read from it (SPEC X.2)."""

from __future__ import annotations

import asyncio
import contextlib

import asyncpg
import pytest
from structlog.testing import capture_logs

from assay_runtime import postgres, postgres_history
from assay_runtime.failures import Pause, Stop
from deploy.kafka.postgres_server import PostgresServer
from tests.unit.runtime.postgres_pools import count, opened


async def test_a_promoted_standby_stops_the_service(disposable_postgres: PostgresServer) -> None:
    """While it is a standby it is waited for; once promoted only a restart helps, every time."""
    server = disposable_postgres
    pool = await opened(server.create_database("failover"))
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.keep_copy)
    await asyncio.to_thread(server.start)
    async with pool.transaction() as connection:
        await connection.execute("INSERT INTO t VALUES (2)")
    await asyncio.to_thread(server.fail_over)
    with contextlib.suppress(Pause):  # by the connection that was cut, if the pool still has it
        await count(pool)
    with pytest.raises(Pause, match="standby"):
        await count(pool)
    await asyncio.to_thread(server.promote)
    for _ in range(2):
        with pytest.raises(Stop, match=r"not the server it was .*/1, now .*/2"):
            await count(pool)
    await pool.close()
    restarted = await opened(server.url("failover"))
    assert await count(restarted) == 1
    await restarted.close()


async def test_it_is_noticed_without_work(
    disposable_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service nobody sends anything to ends as well; an outage before it is waited out."""
    monkeypatch.setattr(postgres, "_WATCH_S", 0.05)
    server = disposable_postgres
    pool = await opened(server.create_database("idle"))
    watch = asyncio.create_task(pool.watch())
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.keep_copy)
    await asyncio.sleep(0.5)
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(server.fail_over)
    await asyncio.sleep(0.5)
    assert not watch.done()
    await asyncio.to_thread(server.promote)
    with pytest.raises(Stop, match="not the server it was"):
        await asyncio.wait_for(watch, 30)
    await pool.close()


async def test_no_statement_has_to_be_known_to_the_server(postgres_url: str) -> None:
    """A pooler may have put another one behind the connection, which knows none of our names."""
    connection = await asyncpg.connect(postgres_url)
    history = postgres_history.History("store")
    for _ in range(3):
        await history.check(connection)
        await connection.execute("DEALLOCATE ALL")
    await connection.close()


async def test_it_is_noticed_behind_a_pooler(
    disposable_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the servers change while our connection stays."""
    monkeypatch.setattr(postgres, "_WATCH_S", 0.05)
    pool = await opened(disposable_postgres.create_database("pooled"))
    watch = asyncio.create_task(pool.watch())
    await asyncio.sleep(0.3)
    assert not watch.done()
    other = postgres_history._ASK.replace("system_identifier", "1 AS system_identifier")
    monkeypatch.setattr(postgres_history, "_ASK", other)
    with pytest.raises(Stop, match="now 1/1"):
        await asyncio.wait_for(watch, 30)
    await pool.close()


async def test_a_crash_of_the_same_server_is_an_outage(disposable_postgres: PostgresServer) -> None:
    """It has every commit, so the same pool goes on."""
    pool = await opened(disposable_postgres.create_database("crash"))
    async with pool.transaction() as connection:
        await connection.execute("INSERT INTO t VALUES (2)")
    await asyncio.to_thread(disposable_postgres.kill)
    await asyncio.to_thread(disposable_postgres.start)
    with contextlib.suppress(Pause):  # by the connection that was cut, if the pool still has it
        await count(pool)
    assert await count(pool) == 2
    await pool.close()


async def test_where_the_server_does_not_say(
    disposable_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some keep these functions to themselves: it is asked and told once, and the store works."""
    url = disposable_postgres.create_database("silent")
    admin = await asyncpg.connect(url)
    await admin.execute(
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC; CREATE ROLE reader LOGIN;"
        " GRANT ALL ON SCHEMA public TO reader"
    )
    await admin.close()
    with capture_logs() as logs:
        pool = await opened(f"postgresql://reader@{url.partition('@')[2]}")
        async with pool.connection(), pool.connection():
            assert await count(pool) == 1
        monkeypatch.setattr(postgres_history, "_ASK", "SELECT would_be_an_error_in_the_servers_log")
        async with pool.connection(), pool.connection(), pool.connection():
            assert await count(pool) == 1
    assert [entry["event"] for entry in logs] == ["failovers_go_unnoticed"]
    await pool.close()
