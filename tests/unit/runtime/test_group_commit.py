"""Group commit: writers share an fsync and nothing else (DESIGN §3, issue 6)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_runtime.failures import Pause
from assay_runtime.group_commit import GroupCommit
from assay_runtime.sqlite import SqliteFile

REPO = Path(__file__).resolve().parents[3]
TABLES = (
    "CREATE TABLE parent (n INTEGER PRIMARY KEY);"
    "CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT,"
    " p INTEGER REFERENCES parent (n) DEFERRABLE INITIALLY DEFERRED);"
)
Write = Callable[[sqlite3.Connection], Any]


class Counted:
    """A file whose commits are counted, and a gate that makes writers wait for each other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = SqliteFile(path, (TABLES,), "store")
        self.commits = 0
        self.gate = threading.Event()

    async def __aenter__(self) -> Counted:
        await self.file.open()
        await self.file.read(lambda db: db.set_trace_callback(self._note))
        await self.file.read(lambda db: db.execute("PRAGMA foreign_keys=ON").fetchone())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.file.close()

    def _note(self, statement: str) -> None:
        self.commits += statement == "COMMIT"

    async def together(self, *writes: Write) -> list[Any]:
        """Outcomes of writes that all wait behind one other."""
        held = asyncio.create_task(self.file.read(lambda db: self.gate.wait()))
        await asyncio.sleep(0)
        tasks = [asyncio.create_task(self.file.write(write)) for write in writes]
        await asyncio.sleep(0)
        self.gate.set()
        await held
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    def rows(self) -> list[int]:
        """As another process would see them: committed and nothing else."""
        other = sqlite3.connect(self.path)
        try:
            return [row[0] for row in other.execute("SELECT n FROM t ORDER BY n")]
        finally:
            other.close()


def insert(number: int, returns: Any = None) -> Write:
    def write(db: sqlite3.Connection) -> Any:
        db.execute("INSERT INTO t (n) VALUES (?)", (number,))
        return number if returns is None else returns

    return write


async def test_writers_that_wait_share_a_commit(tmp_path: Path) -> None:
    """In the order in which they came; each with its own result."""
    seen: list[int] = []

    def noted(number: int) -> Write:
        def write(db: sqlite3.Connection) -> int:
            seen.append(db.execute("SELECT count(*) FROM t").fetchone()[0])
            return int(insert(number)(db))

        return write

    async with Counted(tmp_path / "db") as store:
        assert await store.together(*(noted(n) for n in range(100))) == list(range(100))
        assert store.commits == 1
        assert seen == list(range(100))


async def test_the_waiter_resumes_after_the_commit(tmp_path: Path) -> None:
    """DESIGN §3: committed before the key is used."""
    visible: list[bool] = []

    async with Counted(tmp_path / "db") as store:

        async def reserve_and_use(number: int) -> None:
            await store.file.write(insert(number))
            visible.append(number in store.rows())

        await asyncio.gather(*(reserve_and_use(n) for n in range(50)))
    assert visible == [True] * 50


async def test_what_one_raises_undoes_its_own_work_only(tmp_path: Path) -> None:
    def half(db: sqlite3.Connection) -> None:
        insert(10)(db)
        raise KeyError("in the middle")

    async with Counted(tmp_path / "db") as store:
        found = await store.together(insert(1), half, insert(2), insert(1), insert(3))
        assert [type(one) for one in found] == [int, KeyError, int, sqlite3.IntegrityError, int]
        assert store.rows() == [1, 2, 3]
        assert store.commits == 1


async def test_a_transaction_that_one_ends_is_repeated_without_it(tmp_path: Path) -> None:
    """SQLite itself rolls everything back on some errors; the others are run again."""

    def ends_all(db: sqlite3.Connection) -> None:
        insert(10)(db)
        db.execute("INSERT OR ROLLBACK INTO t (n) VALUES (10)")

    async with Counted(tmp_path / "db") as store:
        found = await store.together(insert(1), ends_all, insert(2))
        assert [type(one) for one in found] == [int, sqlite3.IntegrityError, int]
        assert store.rows() == [1, 2]


async def test_a_commit_that_fails_is_the_fault_of_one(tmp_path: Path) -> None:
    """A deferred constraint is judged at the commit, when it can no longer be seen whose it is."""

    def orphan(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO t (n, p) VALUES (10, 99)")

    async with Counted(tmp_path / "db") as store:
        found = await store.together(insert(1), orphan, insert(2))
        assert [type(one) for one in found] == [int, sqlite3.IntegrityError, int]
        assert store.rows() == [1, 2]


async def test_a_full_disk_stops_whom_it_stops(tmp_path: Path) -> None:
    def much(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO t (n, text) VALUES (10, ?)", ("x" * 500_000,))

    async with Counted(tmp_path / "db") as store:
        pages = await store.file.read(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
        limit = f"PRAGMA max_page_count={pages + 4}"
        await store.file.read(lambda db: db.execute(limit).fetchone())
        found = await store.together(insert(1), much, insert(2))
        assert [type(one) for one in found] == [int, Pause, int]
        assert store.rows() == [1, 2]


async def test_a_locked_file_stops_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_runtime.sqlite._LOCK_S", 0.05)
    async with Counted(tmp_path / "db") as store:
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        found = await store.together(insert(1), insert(2))
        assert [type(one) for one in found] == [Pause, Pause]
        other.execute("COMMIT")
        other.close()
        assert await store.together(insert(1), insert(2)) == [1, 2]


async def test_a_waiter_that_is_cancelled_takes_nobody_along(tmp_path: Path) -> None:
    """Before it began its write is left out; the others are committed and told."""
    async with Counted(tmp_path / "db") as store:
        held = asyncio.create_task(store.file.read(lambda db: store.gate.wait()))
        await asyncio.sleep(0)
        tasks = [asyncio.create_task(store.file.write(insert(n))) for n in range(5)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.sleep(0)
        store.gate.set()
        await held
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [one for one in found if isinstance(one, int)] == [0, 1, 3, 4]
        assert isinstance(found[2], asyncio.CancelledError)
        assert store.rows() == [0, 1, 3, 4]


async def test_a_waiter_that_is_cancelled_while_its_write_runs(tmp_path: Path) -> None:
    """What it wrote stands, and those behind it are told all the same."""
    async with Counted(tmp_path / "db") as store:
        entered, go_on = threading.Event(), threading.Event()

        def slow(db: sqlite3.Connection) -> None:
            insert(2)(db)
            entered.set()
            go_on.wait(10)

        held = asyncio.create_task(store.file.read(lambda db: store.gate.wait()))
        await asyncio.sleep(0)
        writes: list[Write] = [insert(1), slow, insert(3)]
        tasks = [asyncio.create_task(store.file.write(write)) for write in writes]
        await asyncio.sleep(0)
        store.gate.set()
        await asyncio.to_thread(entered.wait, 10)
        tasks[1].cancel()
        await asyncio.sleep(0)
        go_on.set()
        async with asyncio.timeout(10):
            assert (await tasks[0], await tasks[2]) == (1, 3)
            await held
        assert store.rows() == [1, 2, 3]


async def test_a_transaction_is_bounded(tmp_path: Path) -> None:
    """Other processes wait for it as a whole."""
    async with Counted(tmp_path / "db") as store:
        assert await store.together(*(insert(n) for n in range(600))) == list(range(600))
        assert store.commits == 3


async def test_a_storm_of_exceptions_leaves_nobody_waiting(tmp_path: Path) -> None:
    """Each writer gets its own error or result, whatever kind and however many; a third of them
    end the shared transaction, so that all are run again."""

    def ends_all(db: sqlite3.Connection) -> None:
        db.execute("ROLLBACK")
        raise LookupError

    def half(db: sqlite3.Connection) -> None:
        insert(-1)(db)
        raise KeyError

    async with Counted(tmp_path / "db") as store:
        writes = [(insert(n), ends_all, half)[n % 3] for n in range(600)]
        async with asyncio.timeout(30):
            found = await store.together(*writes)
        assert found[0::3] == list(range(0, 600, 3))
        assert {type(one) for one in found[1::3]} == {LookupError}
        assert {type(one) for one in found[2::3]} == {KeyError}
        assert store.rows() == list(range(0, 600, 3))
        assert await store.file.write(insert(1)) == 1


async def test_a_reader_sees_committed_rows_only(tmp_path: Path) -> None:
    """It stands between two transactions, whoever shares them."""
    async with Counted(tmp_path / "db") as store:
        writes = [asyncio.create_task(store.file.write(insert(n))) for n in range(300)]
        seen = await store.file.read(
            lambda db: (db.in_transaction, db.execute("SELECT count(*) FROM t").fetchone()[0])
        )
        assert seen[0] is False
        assert len(store.rows()) >= seen[1]
        await asyncio.gather(*writes)
        assert store.rows() == list(range(300))


async def test_random_writers_leave_what_each_alone_would(tmp_path: Path) -> None:
    """Against a model: a set of keys, where a taken key or a raised error leaves no trace."""
    chance = random.Random(7)
    async with Counted(tmp_path / "db") as store:
        model: set[int] = set()

        def write(numbers: list[int], fails: bool) -> Write:
            def run(db: sqlite3.Connection) -> int:
                for number in numbers:
                    insert(number)(db)
                if fails:
                    raise LookupError
                return len(numbers)

            return run

        for _ in range(40):
            store.gate.clear()
            work = [
                (chance.sample(range(200), chance.randint(1, 4)), chance.random() < 0.2)
                for _ in range(chance.randint(1, 30))
            ]
            found = await store.together(*(write(*item) for item in work))
            for (numbers, fails), outcome in zip(work, found, strict=True):
                if model.intersection(numbers):
                    assert isinstance(outcome, sqlite3.IntegrityError)
                elif fails:
                    assert isinstance(outcome, LookupError)
                else:
                    assert outcome == len(numbers)
                    model.update(numbers)
            assert store.rows() == sorted(model)


class BrokenDisk:
    """A connection whose COMMIT and ROLLBACK fail while `broken`."""

    def __init__(self) -> None:
        self.inner = sqlite3.connect(":memory:", isolation_level=None)
        self.inner.execute("CREATE TABLE t (n INTEGER)")
        self.broken = True

    @property
    def in_transaction(self) -> bool:
        return self.inner.in_transaction

    def execute(self, statement: str, *parameters: object) -> sqlite3.Cursor:
        if self.broken and statement in ("COMMIT", "ROLLBACK"):
            raise sqlite3.OperationalError("disk I/O error")
        return self.inner.execute(statement, *parameters)


@pytest.mark.parametrize("writers", [1, 2])
async def test_a_rollback_that_fails_leaves_nobody_waiting(writers: int) -> None:
    """And its transaction is gone before the next one."""
    disk = BrokenDisk()
    group = GroupCommit(disk)  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()

    async def insert(number: int) -> list[object]:
        outcomes = [loop.create_future() for _ in range(writers)]
        for outcome in outcomes:
            group.add(lambda db: db.execute("INSERT INTO t VALUES (?)", (number,)), outcome, loop)
        group.flush()
        async with asyncio.timeout(5):
            return await asyncio.gather(*outcomes, return_exceptions=True)

    assert all(isinstance(told, sqlite3.OperationalError) for told in await insert(1))
    disk.broken = False
    assert not any(isinstance(told, BaseException) for told in await insert(2))
    assert disk.inner.execute("SELECT DISTINCT n FROM t").fetchall() == [(2,)]


_WRITER = """
import asyncio, sys
from pathlib import Path
from assay_runtime.sqlite import SqliteFile

async def main():
    file = SqliteFile(Path(sys.argv[1]), ("CREATE TABLE t (n INTEGER, half TEXT)",), "store")
    await file.open()
    async def one(start):
        for n in range(start, 10**9, 32):
            def write(db):
                db.execute("INSERT INTO t VALUES (?, 'a')", (n,))
                db.execute("INSERT INTO t VALUES (?, 'b')", (n,))
            await file.write(write)
            sys.stdout.write(f"{n}\\n")
            sys.stdout.flush()
    await asyncio.gather(*(one(start) for start in range(32)))

asyncio.run(main())
"""


def test_what_was_told_survives_a_kill(tmp_path: Path) -> None:
    """kill -9 in the middle of many writers: everything that was told is there, and nothing by
    half."""
    path = tmp_path / "db"
    environment = {**os.environ, "PYTHONPATH": str(REPO / "shared")}
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, env=environment
    ) as child:
        assert child.stdout is not None
        told = [int(child.stdout.readline()) for _ in range(500)]
        child.send_signal(signal.SIGKILL)
        lines = child.stdout.read().split(b"\n")
    told += [int(line) for line in lines[:-1]]  # the last one may be cut
    db = sqlite3.connect(path)
    kept: dict[int, set[str]] = {}
    for number, half in db.execute("SELECT n, half FROM t"):
        kept.setdefault(number, set()).add(half)
    db.close()
    assert set(told) <= kept.keys()
    assert all(halves == {"a", "b"} for halves in kept.values())
