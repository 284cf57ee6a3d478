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
            self._path, isolation_level=None, timeout=10, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("BEGIN IMMEDIATE")
        try:
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
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            connection.close()
            raise
        self._connection = connection

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

        def transaction() -> T:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = function(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return result

        return await self._run(transaction)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise Pause(self._what, f"{self._path} is not open")
        return self._connection

    async def _run(self, function: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function)
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.DatabaseError, OSError) as error:
            raise Pause(self._what, f"{self._path}: {error}") from error
