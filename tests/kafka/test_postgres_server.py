"""PostgreSQL from Debian's packages for tests (issue item 6)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import asyncpg
import pytest

from deploy.kafka import postgres_server as module
from deploy.kafka.postgres_server import PostgresServer
from deploy.owned_process import MissingTool, ServerError, start_mark


async def test_acknowledged_commits_survive_kill(disposable_postgres: PostgresServer) -> None:
    """A commit confirmed before kill -9 is there afterwards, on the same address."""
    server = disposable_postgres
    url = server.create_database("ledger")
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE facts (n int PRIMARY KEY)")
    for n in range(100):
        await connection.execute("INSERT INTO facts VALUES ($1)", n)
    server.kill()
    assert not server.running
    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        await connection.execute("INSERT INTO facts VALUES (1000)")
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(server.restart)
    assert server.url("ledger") == url
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT count(*) FROM facts") == 100
    assert await connection.fetchval("SHOW synchronous_commit") == "on"
    await connection.close()


async def write_table(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE TABLE only_here (n int)")
        return int(
            await connection.fetchval("SELECT count(*) FROM pg_class WHERE relname='only_here'")
        )
    finally:
        await connection.close()


@pytest.mark.parametrize("_run", [1, 2])
async def test_each_test_has_an_empty_database(postgres_url: str, _run: int) -> None:
    """The second run would fail on the first one's table."""
    assert await write_table(postgres_url) == 1


async def test_databases_are_utf8(postgres_url: str) -> None:
    """Wallet records carry any text."""
    connection = await asyncpg.connect(postgres_url)
    assert await connection.fetchval("SHOW server_encoding") == "UTF8"
    assert await connection.fetchval("SELECT 'ключ ▁'::text") == "ключ ▁"
    await connection.close()


def test_names_are_checked(postgres_server: PostgresServer) -> None:
    """A name goes into SQL as it is, so only plain ones are taken; a second of a kind fails."""
    for name in ("a; DROP DATABASE postgres", "A", "", "x" * 64):
        with pytest.raises(ValueError, match="plain database name"):
            postgres_server.create_database(name)
    postgres_server.create_database("twice")
    with pytest.raises(ServerError, match="already exists"):
        postgres_server.create_database("twice")
    postgres_server.drop_database("twice")


_SILENCED = """
import sys, time
from pathlib import Path
from deploy.kafka.postgres_server import PostgresServer
server = PostgresServer(Path(sys.argv[1]), dies_with_parent=True)
server.start()
with server.silent():
    print(server.process.pid, flush=True)
    time.sleep(60)
"""


def test_a_silent_server_ends_with_who_silenced_it(postgres_server: PostgresServer) -> None:
    """A killed fault run leaves no stopped server behind, which would not hear of its end."""
    with tempfile.TemporaryDirectory(prefix="assay-silent-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL's account must get in
        command = [sys.executable, "-c", _SILENCED, folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as runner:
            assert runner.stdout is not None
            pid = int(runner.stdout.readline())
            assert start_mark(pid) is not None
            runner.kill()
        deadline = time.monotonic() + 20
        while start_mark(pid) is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_missing_binaries_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the Debian package."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "_DEBIAN", tmp_path)
    with pytest.raises(MissingTool, match=r"^PostgreSQL is missing: run `apt-get install postgr"):
        PostgresServer(tmp_path)
