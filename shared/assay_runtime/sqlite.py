"""SQLite off the event loop: one connection on one thread, writers that wait share a commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from assay_runtime.failures import Pause
from assay_runtime.group_commit import GroupCommit, in_transaction
from assay_runtime.settings import SettingsError
from assay_runtime.sqlite_opening import open_connection

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


class SqliteFile:
    """A database file in WAL mode with synchronous=FULL: what is committed survives power loss.
    Made where there is none, readable by its owner alone.

    `migrations` are SQL scripts; `PRAGMA user_version` counts those applied. A file written by a
    newer version is refused. Everything that is away (disk full, file locked or unreadable)
    raises Pause, so that no record is blamed for it.

    Functions given to `write` may be run a second time, and must therefore do nothing but work
    on the connection.
    """

    def __init__(self, path: Path, migrations: Sequence[str], what: str) -> None:
        self._path = path
        self._migrations = migrations
        self._what = what
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"sqlite-{what}")
        self._connection: sqlite3.Connection | None = None
        self._writes: GroupCommit | None = None

    async def open(self) -> None:
        await self._run(self._open)

    def _open(self) -> None:
        connection = open_connection(self._path, _LOCK_S)
        try:
            in_transaction(connection, self._migrate)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._writes = GroupCommit(connection)

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
        """Run `function` as a whole or not at all, committed before this returns.

        Writers that wait at the same time are run in turn in one transaction, so that they share
        its fsync; what one of them raises undoes its own work and no other's.
        """
        self._opened()
        assert self._writes is not None  # noqa: S101
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        self._writes.add(function, outcome, loop)
        self._thread.submit(self._writes.flush)
        return await self._told(outcome)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise Pause(self._what, f"{self._path} is not open")
        return self._connection

    async def _run(self, function: Callable[[], T]) -> T:
        return await self._told(asyncio.get_running_loop().run_in_executor(self._thread, function))

    async def _told(self, outcome: asyncio.Future[T]) -> T:
        """The outcome, with Pause for what is away."""
        try:
            return await outcome
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _OUTAGES:
                raise
            raise Pause(self._what, f"{self._path}: {error}") from error
        except OSError as error:
            raise Pause(self._what, f"{self._path}: {error}") from error
