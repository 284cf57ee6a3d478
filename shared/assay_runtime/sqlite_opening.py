"""Opens a database file, which other processes may be making at the same moment."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import threading
import time
from pathlib import Path

import structlog

log = structlog.get_logger()

# Between two tries; by chance, so that those who wait do not meet again.
_AGAIN_S = (0.002, 0.02)
_MODE = 0o600
_making = threading.Lock()


def open_connection(path: Path, lock_s: float) -> sqlite3.Connection:
    """A connection in WAL mode with synchronous=FULL, for any thread; every wait for a lock ends
    after `lock_s` seconds in sqlite3.OperationalError.

    A file that is made here is its owner's alone, and so are the two that SQLite lays beside it,
    which take its mode over. One that exists keeps the mode that somebody gave it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not _make(path) and path.stat().st_mode & stat.S_IRWXO:
        log.warning("store_open_to_others", path=str(path), remedy=f"chmod {_MODE:o}")
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=lock_s, check_same_thread=False
    )
    try:
        _use_wal(connection, time.monotonic() + lock_s)
        connection.execute("PRAGMA synchronous=FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path) -> bool:
    """An empty file, where there is none; whether there was none.

    A file that exists is never opened here: closing it would release the locks that SQLite holds
    on it in this process (POSIX advisory locks), hence the lock among threads too.
    """
    with _making:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, _MODE)
        except FileExistsError:
            return False
        os.close(descriptor)
    return True


def _use_wal(connection: sqlite3.Connection, deadline: float) -> None:
    """SQLite does not wait where two would switch a new file at once: to let both wait for the
    other's read lock would be a deadlock."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= deadline:
                raise
            time.sleep(random.uniform(*_AGAIN_S))
        else:
            return
