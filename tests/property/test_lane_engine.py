"""The lane engine over an intake in memory, under random completions and rebalances.

Issue item 1: one running per key, bounded admission, a quota per partition, nothing of an old
assignment has an effect, what is queued at a rebalance is dropped and comes back.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_runtime.lane import LaneEngine
from assay_runtime.records import Position, Record
from assay_runtime.window import Ticket, Window


class MemoryIntake:
    """Intake's poll, complete and window over lists of records; a rebalance takes all away and
    gives back from the watermarks, as Kafka does from the committed offsets."""

    def __init__(self, logs: dict[Position, list[Record]]) -> None:
        self.window = Window()
        self.logs = logs
        self.read: dict[Position, int] = {}
        self.marks = dict.fromkeys(logs, 0)
        self.most_held: Counter[Position] = Counter()
        self.most_in_flight = 0
        self.arrived = asyncio.Event()
        self.assign()

    def assign(self) -> None:
        self.read = dict(self.marks)
        self.window.assign(self.marks)
        self.arrived.set()

    def revoke(self) -> None:
        for position in self.window.positions():
            mark = self.window.watermark(position)
            assert mark is not None
            assert mark >= self.marks[position], "a commit went back"
            self.marks[position] = mark
        self.window.revoke(self.window.positions())

    async def poll(
        self, max_records: int, wait_ms: int, only: Sequence[Position] = ()
    ) -> list[tuple[Ticket, Record]]:
        got = self._buffered(max_records, only)
        if not got and wait_ms:
            self.arrived.clear()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self.arrived.wait()
            except TimeoutError:
                return []
            got = self._buffered(max_records, only)
        return got

    def _buffered(self, max_records: int, only: Sequence[Position]) -> list[tuple[Ticket, Record]]:
        admitted: list[tuple[Ticket, Record]] = []
        for position in only or self.window.positions():
            if position not in self.window.positions():
                continue
            for record in self.logs[position][self.read[position] :]:
                if len(admitted) >= max_records:
                    break
                ticket = self.window.admit(position, record.offset)
                assert ticket is not None
                admitted.append((ticket, record))
                self.read[position] = record.offset + 1
            self.most_held[position] = max(self.most_held[position], self.window.held(position))
        self.most_in_flight = max(self.most_in_flight, self.window.in_flight)
        return admitted

    def complete(self, ticket: Ticket) -> None:
        self.window.complete(ticket)


class ControlledStage:
    """Runs until it is told to finish; keeps what ran beside what."""

    def __init__(self) -> None:
        self.running: dict[tuple[str, int, int], asyncio.Future[None]] = {}
        self.keys: Counter[bytes | None] = Counter()
        self.finished: list[Record] = []
        self.most = 0

    async def confirm(self, confirmations: list[asyncio.Future[object]]) -> None:
        await asyncio.sleep(0)

    async def send(self, records: Sequence[Record]) -> list[asyncio.Future[object]]:
        (record,) = records
        name = (record.topic, record.partition, record.offset)
        self.keys[record.key] += 1
        assert record.key is None or self.keys[record.key] == 1, "two of one key at once"
        finish = asyncio.get_running_loop().create_future()
        self.running[name] = finish
        self.most = max(self.most, len(self.running))
        try:
            await finish
            self.finished.append(record)
        finally:
            del self.running[name]
            self.keys[record.key] -= 1
        return []


def record(topic: str, partition: int, offset: int, key: bytes | None) -> Record:
    return Record(topic, partition, offset, 0, key, b"", ())


def logs(
    topics: Sequence[str], partitions: int, keys: Sequence[bytes | None]
) -> dict[Position, list[Record]]:
    """One key always on the same partition number, as the partitioner has it."""
    made: dict[Position, list[Record]] = {
        Position(t, p): [] for t in topics for p in range(partitions)
    }
    for number, key in enumerate(keys):
        place = Position(topics[number % len(topics)], (key or b"\0")[0] % partitions)
        made[place].append(record(*place, len(made[place]), key))
    return made


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


def check_order(finished: Sequence[Record]) -> None:
    """First completions per key and topic are in the log's order."""
    last: dict[tuple[str, bytes | None], int] = defaultdict(lambda: -1)
    seen: set[tuple[str, int, int]] = set()
    for done in finished:
        name = (done.topic, done.partition, done.offset)
        if done.key is None or name in seen:
            continue
        seen.add(name)
        assert done.offset > last[done.topic, done.key]
        last[done.topic, done.key] = done.offset


@settings(max_examples=60, deadline=None)
@given(
    keys=st.lists(st.sampled_from([None, b"", b"a", b"b", b"c", b"d", b"e"]), max_size=80),
    slots=st.integers(1, 6),
    partitions=st.integers(1, 4),
    rebalances=st.integers(0, 3),
    seed=st.integers(0, 10_000),
)
async def test_everything_once_in_order_within_bounds(
    keys: list[bytes | None], slots: int, partitions: int, rebalances: int, seed: int
) -> None:
    chance = random.Random(seed)
    intake = MemoryIntake(logs(["old", "first"], partitions, keys))
    stage = ControlledStage()
    engine = LaneEngine("p", intake, stage, slots, frozenset({"first"}))  # type: ignore[arg-type]
    run = asyncio.create_task(engine.run())
    quota = max(2, -(-4 * slots // (2 * partitions)))
    moments = sorted(chance.sample(range(200), rebalances))
    for step in range(5_000):
        await settle()
        if moments and moments[0] <= step:
            moments.pop(0)
            late = set(stage.running)
            revoking = asyncio.create_task(engine.drain(0.001))
            await revoking
            assert not stage.running, f"{late} still run without their partitions"
            intake.revoke()
            assert intake.window.in_flight == 0
            intake.assign()
            continue
        if not stage.running and not moments:
            if all(intake.window.watermark(p) == len(log) for p, log in intake.logs.items()):
                break
            intake.arrived.set()
        for name in chance.sample(
            sorted(stage.running), k=min(len(stage.running), chance.randint(1, 3))
        ):
            stage.running[name].set_result(None)
    await engine.stop(0)
    await run
    want = {(p.topic, p.partition, r.offset) for p, log in intake.logs.items() for r in log}
    assert {(r.topic, r.partition, r.offset) for r in stage.finished} == want, "lost"
    check_order(stage.finished)
    assert stage.most <= slots
    assert intake.most_in_flight <= 4 * slots
    assert all(held <= quota for held in intake.most_held.values())
    if not rebalances:
        assert len(stage.finished) == len(want), "repeated without a reason"


async def test_a_drain_leaves_no_gap_below_what_is_done() -> None:
    """A gap would repeat the records above it, which are paid for; what stands above all that
    ran is dropped, and nothing further is started for it."""
    keys: list[bytes | None] = [b"a", b"a", b"b", b"a", b"a"]
    intake = MemoryIntake(logs(["t"], 1, keys))
    stage = ControlledStage()
    engine = LaneEngine("p", intake, stage, 2, frozenset())  # type: ignore[arg-type]
    run = asyncio.create_task(engine.run())
    await settle()
    assert set(stage.running) == {("t", 0, 0), ("t", 0, 2)}
    stage.running["t", 0, 2].set_result(None)
    await settle()
    drain = asyncio.create_task(engine.drain(30))
    await settle()
    stage.running["t", 0, 0].set_result(None)
    await settle()
    assert set(stage.running) == {("t", 0, 1)}
    stage.running["t", 0, 1].set_result(None)
    await drain
    assert not stage.running
    assert intake.window.watermark(Position("t", 0)) == 3
    await engine.stop(0)
    await run


async def test_an_old_assignments_completion_changes_nothing() -> None:
    """A record that outlives its assignment (it would not be cancelled) completes in vain."""
    intake = MemoryIntake(logs(["t"], 1, [b"a", b"b"]))
    tickets = [ticket for ticket, _ in await intake.poll(2, 0)]
    intake.revoke()
    intake.assign()
    for ticket in tickets:
        intake.complete(ticket)
    assert intake.window.committable() == {}
    assert intake.marks == {Position("t", 0): 0}


async def test_one_hot_partition_leaves_slots_to_the_others() -> None:
    """Research §6: a megabyte of one partition must not fill the window."""
    keys: list[bytes | None] = [b"\0hot"] * 500 + [b"\1%d" % n for n in range(7)]
    intake = MemoryIntake(logs(["t"], 2, keys))
    stage = ControlledStage()
    engine = LaneEngine("p", intake, stage, 8, frozenset())  # type: ignore[arg-type]
    run = asyncio.create_task(engine.run())
    await settle()
    assert len(stage.running) == 8
    assert sum(partition == 0 for _, partition, _ in stage.running) == 1
    await engine.stop(0)
    await run


async def test_a_failure_stops_the_rest() -> None:
    """After a Stop nothing further is started, and run() raises it at once."""
    intake = MemoryIntake(logs(["t"], 1, [b"%d" % n for n in range(40)]))
    stage = ControlledStage()
    engine = LaneEngine("p", intake, stage, 2, frozenset())  # type: ignore[arg-type]
    run = asyncio.create_task(engine.run())
    await settle()
    first, second = stage.running.values()
    first.set_exception(RuntimeError("broken"))
    await settle()
    assert len(stage.running) == 1
    second.set_result(None)
    with pytest.raises(RuntimeError, match="broken"):
        await run
    await settle()
    assert not stage.running
    await engine.stop(0)
    assert intake.window.watermark(Position("t", 0)) == 0


async def test_a_record_cancelled_by_nobody_is_a_failure() -> None:
    """Swallowed, its offset would hold the watermark for ever."""
    intake = MemoryIntake(logs(["t"], 1, [b"a"]))
    stage = ControlledStage()
    engine = LaneEngine("p", intake, stage, 2, frozenset())  # type: ignore[arg-type]
    run = asyncio.create_task(engine.run())
    await settle()
    next(iter(stage.running.values())).cancel()
    with pytest.raises(Exception, match="cancelled by nobody"):
        await run


async def test_nothing_starts_after_stop() -> None:
    """A poll that was under way when the engine was stopped must not start a record."""
    intake = MemoryIntake({Position("t", 0): []})
    stage = ControlledStage()
    engine = LaneEngine("p", intake, stage, 2, frozenset())  # type: ignore[arg-type]
    run = asyncio.create_task(engine.run())
    await settle()
    await engine.stop(0)
    intake.logs[Position("t", 0)].append(record("t", 0, 0, b"a"))
    intake.arrived.set()
    await run
    await settle()
    assert not stage.running
