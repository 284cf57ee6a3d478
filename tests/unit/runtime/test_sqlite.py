"""SqliteFile: migrations, atomic writes, outages told apart from mistakes (DESIGN §3)."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from assay_runtime import sqlite as module
from assay_runtime.failures import Pause
from assay_runtime.settings import SettingsError
from assay_runtime.sqlite import SqliteFile

FIRST = "CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT); INSERT INTO t VALUES (1, 'a;b');"
SECOND = (
    "ALTER TABLE t ADD COLUMN more TEXT; CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END;"
)


async def opened(path: Path, *migrations: str) -> SqliteFile:
    file = SqliteFile(path, migrations or (FIRST,), "store")
    await file.open()
    return file


def all_rows(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT n, text FROM t ORDER BY n").fetchall()


def insert(number: int) -> object:
    return lambda connection: connection.execute("INSERT INTO t (n) VALUES (?)", (number,))


async def test_migrations_run_once_and_in_order(tmp_path: Path) -> None:
    """Semicolons in texts and triggers are no ends of statements."""
    path = tmp_path / "deep" / "db"
    for migrations in ((FIRST,), (FIRST,), (FIRST, SECOND), (FIRST, SECOND)):
        file = await opened(path, *migrations)
        assert await file.read(all_rows) == [(1, "a;b")]
        await file.close()
    file = await opened(path, FIRST, SECOND)
    assert await file.read(lambda c: c.execute("PRAGMA user_version").fetchone()[0]) == 2
    assert await file.read(lambda c: c.execute("PRAGMA synchronous").fetchone()[0]) == 2
    assert await file.read(lambda c: c.execute("PRAGMA journal_mode").fetchone()[0]) == "wal"
    await file.close()


async def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    await (await opened(tmp_path / "db", FIRST, SECOND)).close()
    with pytest.raises(SettingsError, match=r"newer version \(2\); this one knows 1"):
        await opened(tmp_path / "db", FIRST)


async def test_a_migration_that_fails_leaves_the_old_schema(tmp_path: Path) -> None:
    """A mistake in SQL is a mistake, not an outage that is waited for."""
    await (await opened(tmp_path / "db")).close()
    with pytest.raises(sqlite3.OperationalError, match="syntax"):
        await opened(tmp_path / "db", FIRST, "CREATE TABLE u (n); BROKEN;")
    file = await opened(tmp_path / "db")
    tables = await file.read(
        lambda c: [row[0] for row in c.execute("SELECT name FROM sqlite_master")]
    )
    assert tables == ["t"]
    await file.close()


async def test_a_write_is_all_or_nothing(tmp_path: Path) -> None:
    file = await opened(tmp_path / "db")

    def half(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t VALUES (2, 'x')")
        raise KeyError("in the middle")

    with pytest.raises(KeyError):
        await file.write(half)
    with pytest.raises(sqlite3.IntegrityError):
        await file.write(lambda c: c.executemany("INSERT INTO t (n) VALUES (?)", [(3,), (1,)]))
    assert await file.read(all_rows) == [(1, "a;b")]
    await file.write(insert(2))  # type: ignore[arg-type]
    assert len(await file.read(all_rows)) == 2
    await file.close()


async def test_a_write_that_is_cancelled_is_whole(tmp_path: Path) -> None:
    """A rebalance gives the waiting up, never a part of the transaction."""
    file = await opened(tmp_path / "db")

    def slow(connection: sqlite3.Connection) -> None:
        import time

        connection.execute("INSERT INTO t (n) VALUES (2)")
        time.sleep(0.1)
        connection.execute("INSERT INTO t (n) VALUES (3)")

    write = asyncio.create_task(file.write(slow))
    await asyncio.sleep(0.02)
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write
    assert [row[0] for row in await file.read(all_rows)] == [1, 2, 3]
    await file.close()


async def test_a_locked_file_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waited for, and the same call works once the lock is gone; at open too."""
    monkeypatch.setattr(module, "_LOCK_S", 0.05)
    file = await opened(tmp_path / "db")
    other = sqlite3.connect(tmp_path / "db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Pause, match=r"store: .*locked"):
        await file.write(insert(2))  # type: ignore[arg-type]
    second = SqliteFile(tmp_path / "db", (FIRST,), "store")
    with pytest.raises(Pause, match="locked"):
        await second.open()
    other.execute("COMMIT")
    await second.open()
    await file.write(insert(2))  # type: ignore[arg-type]
    await second.close()
    await file.close()
    other.close()


async def test_a_full_disk_is_an_outage(tmp_path: Path) -> None:
    """The transaction is gone as a whole, and the next one works when there is room."""
    file = await opened(tmp_path / "db")
    pages = await file.read(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    await file.read(lambda c: c.execute(f"PRAGMA max_page_count={pages}").fetchone())

    def much(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t (n) VALUES (2)")
        connection.execute("INSERT INTO t VALUES (3, ?)", ("x" * 100_000,))

    with pytest.raises(Pause, match="full"):
        await file.write(much)
    assert [row[0] for row in await file.read(all_rows)] == [1]
    await file.read(lambda c: c.execute("PRAGMA max_page_count=100000").fetchone())
    await file.write(much)
    assert len(await file.read(all_rows)) == 3
    await file.close()


async def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    """Unreadable, corrupt or in a place that cannot be written: Pause with the path."""
    (tmp_path / "db").write_bytes(b"not a database at all, but long enough to be read as one" * 9)
    with pytest.raises(Pause, match="not a database"):
        await opened(tmp_path / "db")
    (tmp_path / "file").write_text("")
    with pytest.raises(Pause, match="store: "):
        await opened(tmp_path / "file" / "db")


async def test_a_mistake_in_a_query_is_a_mistake(tmp_path: Path) -> None:
    """As Pause it would stop the service for ever, aloud about the wrong thing."""
    file = await opened(tmp_path / "db")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await file.read(lambda c: c.execute("SELECT * FROM missing"))
    with pytest.raises(sqlite3.ProgrammingError):
        await file.write(lambda c: c.execute("INSERT INTO t VALUES (?, ?)", (1,)))
    await file.close()
    with pytest.raises(Pause, match="not open"):
        await file.read(all_rows)
    await file.close()
