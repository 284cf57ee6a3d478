"""SQLite off the event loop: one connection on one thread, one transaction per call."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from assay_runtime.failures import Pause
from assay_runtime.settings import SettingsError

T = TypeVar("T")

_LOCK_S = 10.0
# Result codes (low byte) that say the file is away. Others, as a missing table or a violated
# constraint, are a mistake or an answer.
_OUTAGES = frozenset(
    (
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOTADB,
    )
)


def _statements(script: str) -> list[str]:
    """The script's statements; executescript would end the transaction it runs in."""
    statements, current = [], ""
    for part in script.split(";"):
        current += part
        if sqlite3.complete_statement(current + ";"):
            statements.append(current)
            current = ""
        else:
            current += ";"
    return statements


def _in_transaction(
    connection: sqlite3.Connection, function: Callable[[sqlite3.Connection], T]
) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = function(connection)
        connection.execute("COMMIT")
    except BaseException:
        # SQLite may have rolled back by itself, on a full disk for one.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


class SqliteFile:
    """A database file in WAL mode with synchronous=FULL: what is committed survives power loss.

    `migrations` are SQL scripts; `PRAGMA user_version` counts those applied. A file written by a
    newer version is refused. Everything that is away (disk full, file locked or unreadable)
    raises Pause, so that no record is blamed for it.
    """

    def __init__(self, path: Path, migrations: Sequence[str], what: str) -> None:
        self._path = path
        self._migrations = migrations
        self._what = what
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"sqlite-{what}")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        await self._run(self._open)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            self._path, isolation_level=None, timeout=_LOCK_S, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            _in_transaction(connection, self._migrate)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(self._migrations):
            raise SettingsError(
                f"{self._path} was written by a newer version ({version}); this one knows "
                f"{len(self._migrations)}"
            )
        for script in self._migrations[version:]:
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version={len(self._migrations)}")

    async def close(self) -> None:
        if self._connection is not None:
            await self._run(self._connection.close)
            self._connection = None
        self._thread.shutdown(wait=False)

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` on the connection, in its thread."""
        connection = self._opened()
        return await self._run(lambda: function(connection))

    async def write(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` in one transaction, committed before this returns."""
        connection = self._opened()

        return await self._run(lambda: _in_transaction(connection, function))

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise Pause(self._what, f"{self._path} is not open")
        return self._connection

    async def _run(self, function: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _OUTAGES:
                raise
            raise Pause(self._what, f"{self._path}: {error}") from error
        except OSError as error:
            raise Pause(self._what, f"{self._path}: {error}") from error
