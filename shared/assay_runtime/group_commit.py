"""Writers that wait share one transaction and its fsync.

On a disk that takes a fifth of a millisecond to make something durable, one transaction per
write is a few thousand writes a second whatever the processor; the same writes in shared
transactions are bound by the processor.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

# Writers per transaction; other processes that share the file wait for it as a whole.
_MOST = 256


def in_transaction(
    connection: sqlite3.Connection, function: Callable[[sqlite3.Connection], T]
) -> T:
    """The function's result, committed; what it raises, with nothing changed."""
    _begin(connection)
    try:
        result = function(connection)
        connection.execute("COMMIT")
    except BaseException:
        # SQLite may have rolled back by itself, on a full disk for one.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _begin(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # a rollback failed, on a broken disk for one
        connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")


@dataclass(slots=True)
class _Write:
    """A function, who waits for it, and what came of it."""

    function: Callable[[sqlite3.Connection], Any]
    outcome: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    result: Any = None
    error: BaseException | None = None

    def run(self, run: Callable[[Callable[[sqlite3.Connection], Any]], Any]) -> None:
        try:
            self.result, self.error = run(self.function), None
        except BaseException as error:
            self.result, self.error = None, error

    def tell(self) -> None:
        if self.outcome.done():
            return  # whoever waited was cancelled; the write stands as it is
        if self.error is not None:
            self.outcome.set_exception(self.error)
        else:
            self.outcome.set_result(self.result)


class _Undone(Exception):
    """The shared transaction is gone, with everything that was done in it."""


class GroupCommit:
    """Collects writes on the event loop and runs them, in order, on the connection's thread.

    Nobody is told of a result before it is committed. A write whose waiter was cancelled before
    it began is left out; one that began is carried through whole.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._waiting: deque[_Write] = deque()

    def add(
        self,
        function: Callable[[sqlite3.Connection], T],
        outcome: asyncio.Future[T],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`outcome` is told once the write is committed or undone; `flush` must follow, on the
        connection's thread."""
        self._waiting.append(_Write(function, outcome, loop))

    def flush(self) -> None:
        """Run what waits; nothing where an earlier call took it along."""
        group: list[_Write] = []
        while self._waiting and len(group) < _MOST:
            write = self._waiting.popleft()
            if not write.outcome.cancelled():
                group.append(write)
        if not group:
            return
        try:
            self._together(group)
        except _Undone:
            # By whose fault shows when each has a transaction of its own.
            self._one_by_one(group)
        except BaseException as error:
            for write in group:  # nobody may wait for ever
                write.result, write.error = None, error
        for loop in {write.loop for write in group}:
            loop.call_soon_threadsafe(_tell, [write for write in group if write.loop is loop])

    def _together(self, group: Sequence[_Write]) -> None:
        if len(group) == 1:
            self._one_by_one(group)
            return
        try:
            _begin(self._connection)
        except sqlite3.Error as error:
            for write in group:
                write.error = error
            return
        for write in group:
            write.run(self._in_savepoint)
            if not self._connection.in_transaction:
                raise _Undone
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise _Undone from error

    def _in_savepoint(self, function: Callable[[sqlite3.Connection], T]) -> T:
        self._connection.execute("SAVEPOINT write")
        try:
            result = function(self._connection)
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK TO write")
                self._connection.execute("RELEASE write")
            raise
        self._connection.execute("RELEASE write")
        return result

    def _one_by_one(self, group: Sequence[_Write]) -> None:
        for write in group:
            write.run(lambda function: in_transaction(self._connection, function))


def _tell(writes: Sequence[_Write]) -> None:
    for write in writes:
        write.tell()
