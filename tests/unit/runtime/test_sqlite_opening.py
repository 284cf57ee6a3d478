"""Database files are made by several processes at once, and for their owner alone."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
import structlog

from assay_runtime.sqlite import SqliteFile

REPO = Path(__file__).resolve().parents[3]
TABLE = "CREATE TABLE t (n INTEGER PRIMARY KEY); INSERT INTO t VALUES (1);"
PROCESSES, FILES = 8, 25


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


async def opened(path: Path) -> SqliteFile:
    file = SqliteFile(path, (TABLE,), "store")
    await file.open()
    return file


async def test_a_new_file_that_another_is_about_to_switch_is_waited_for(tmp_path: Path) -> None:
    """DESIGN §3: SQLite itself does not wait here, whatever the busy timeout: the switch to WAL
    asks for the write lock while it holds the read lock."""
    path = tmp_path / "db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        opening = asyncio.create_task(opened(path))
        await asyncio.sleep(0.1)
        assert not opening.done()
        other.execute("ROLLBACK")
        file = await opening
    assert await file.read(lambda db: db.execute("PRAGMA journal_mode").fetchone()[0]) == "wal"
    assert await file.read(lambda db: db.execute("SELECT n FROM t").fetchall()) == [(1,)]
    await file.close()


def _open_all(folder: Path, barrier: Barrier, failures: Any) -> None:
    found = []
    for number in range(FILES):
        barrier.wait(60)
        try:
            asyncio.run(_open_one(folder / str(number)))
        except Exception as error:
            found.append(repr(error))
    failures.put(found)


async def _open_one(path: Path) -> None:
    file = await opened(path)
    assert await file.read(lambda db: db.execute("SELECT n FROM t").fetchall()) == [(1,)]
    await file.close()


def test_processes_that_make_a_file_together_all_have_it(tmp_path: Path) -> None:
    """Replicas, and the service with its command: made once, migrated once, refused to nobody."""
    context = multiprocessing.get_context("spawn")
    barrier, failures = context.Barrier(PROCESSES), context.Queue()
    crowd = [
        context.Process(target=_open_all, args=(tmp_path, barrier, failures))
        for _ in range(PROCESSES)
    ]
    for process in crowd:
        process.start()
    try:
        assert [failures.get(timeout=120) for _ in crowd] == [[]] * PROCESSES
    finally:
        for process in crowd:
            process.kill()
            process.join()


async def test_only_the_owner_reads_a_new_store(tmp_path: Path, open_umask: None) -> None:
    """DESIGN §7: personal data lie in it; whatever the mode of the folder and the umask, and also
    what SQLite lays beside it."""
    tmp_path.chmod(0o777)
    file = await opened(tmp_path / "db")
    modes = {found.name: stat.S_IMODE(found.stat().st_mode) for found in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("db", "db-wal", "db-shm"), 0o600)
    await file.close()


@pytest.mark.parametrize(("mode", "told"), [(0o640, False), (0o644, True)])
async def test_a_mode_that_somebody_gave_is_kept(tmp_path: Path, mode: int, told: bool) -> None:
    """A backup's group may read; the whole world is said."""
    path = tmp_path / "db"
    await (await opened(path)).close()
    path.chmod(mode)
    with structlog.testing.capture_logs() as logs:
        await (await opened(path)).close()
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert [entry["event"] for entry in logs] == ["store_open_to_others"] * told


async def test_a_second_opening_takes_no_lock_away(tmp_path: Path) -> None:
    """Any descriptor of a file that a process closes takes all its locks on it along; without
    them another process could take the journal away from under this one."""
    path = tmp_path / "db"
    first = await opened(path)
    await (await opened(path)).close()
    switch = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], timeout=0);"
    switch += "print(db.execute('PRAGMA journal_mode=DELETE').fetchone())"
    other = subprocess.run(
        [sys.executable, "-c", switch, str(path)], capture_output=True, text=True, check=False
    )
    assert "database is locked" in other.stderr
    await first.close()


def test_no_service_makes_a_file_elsewhere() -> None:
    """What is proved here holds for the ledger, the requests, the keys and the evidence."""
    sources = [*(REPO / "services").rglob("*.py"), *(REPO / "shared/assay_runtime").rglob("*.py")]
    found = {path.name for path in sources if "sqlite3.connect(" in path.read_text("utf-8")}
    assert found == {"sqlite_opening.py"}
