"""The lane engine over an intake in memory, under random completions, rebalances and crashes.

Issue items 1 and 3: one running per key, bounded admission, a quota per partition, nothing of an
old assignment has an effect, what is queued when partitions go is dropped and comes back, what is
finished never runs again, and a crash repeats no more calls than there are slots.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_runtime import lane
from assay_runtime.lane import LaneEngine
from assay_runtime.records import Position, Record
from assay_runtime.window import Window
from tests.property.memory_intake import MemoryIntake


class ControlledStage:
    """Runs until it is told to finish; keeps what ran beside what."""

    def __init__(self) -> None:
        self.running: dict[tuple[str, int, int], asyncio.Future[None]] = {}
        self.keys: Counter[bytes | None] = Counter()
        self.begun: list[Record] = []
        self.finished: list[Record] = []
        self.most = 0

    async def confirm(self, confirmations: list[asyncio.Future[object]]) -> None:
        await asyncio.sleep(0)

    async def send(self, records: Sequence[Record]) -> list[asyncio.Future[object]]:
        (record,) = records
        name = (record.topic, record.partition, record.offset)
        self.begun.append(record)
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


class DeafStage:
    """Calls that cannot be cancelled; each ends by its gate alone."""

    def __init__(self) -> None:
        self.begun: list[Record] = []
        self.gates: list[asyncio.Future[None]] = []

    async def send(self, records: Sequence[Record]) -> list[asyncio.Future[object]]:
        self.begun += records
        self.gates.append(gate := asyncio.get_running_loop().create_future())
        while not gate.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(gate)
        return []

    async def confirm(self, confirmations: list[asyncio.Future[object]]) -> None:
        await asyncio.sleep(0)


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


@settings(max_examples=100, deadline=None)
@given(
    keys=st.lists(st.sampled_from([None, b"", b"a", b"b", b"c", b"d", b"e"]), max_size=80),
    slots=st.integers(1, 6),
    partitions=st.integers(1, 4),
    turns=st.lists(st.sampled_from(["rebalance", "crash"]), max_size=3),
    dear=st.booleans(),
    seed=st.integers(0, 10_000),
)
async def test_everything_once_in_order_within_bounds(
    keys: list[bytes | None], slots: int, partitions: int, turns: list[str], dear: bool, seed: int
) -> None:
    chance = random.Random(seed)
    intake = MemoryIntake(logs(["old", "first"], partitions, keys))
    stage = ControlledStage()
    with pytest.MonkeyPatch.context() as patched:
        # Calls here take no time; that decides which of the two bounds is meant.
        patched.setattr(lane, "_DEAR_S", -1.0 if dear else 1e9)
        bound = slots if dear else 2 * slots
        engine, run = started(intake, stage, slots)
        moments = sorted(chance.sample(range(60), len(turns)))
        repeated = 0
        for step in range(5_000):
            await settle()
            assert engine.repeatable <= bound
            if moments and moments[0] <= step:
                moments.pop(0)
                begun = len(stage.begun)
                if turns.pop() == "crash":
                    finished = len(stage.finished)
                    await crashed(engine, run, stage, intake)
                    assert len(stage.finished) == finished
                    engine, run = started(intake, stage, slots)
                    repeated += bound
                else:
                    intake.revoking = True
                    late = len(stage.running)
                    await engine.drain(0.001)
                    assert not stage.running, "they run without their partitions"
                    assert len(stage.begun) == begun, "queued records were begun in a drain"
                    intake.commit()
                    assert intake.window.uncommitted == 0
                    intake.let_go()
                    assert intake.window.in_flight == 0
                    intake.assign()
                    repeated += late
                continue
            if chance.random() < 0.5:
                intake.commit()
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
    quota = max(2, -(-4 * slots // (2 * partitions)))
    assert stage.most <= slots
    assert intake.most_in_flight <= 4 * slots
    assert all(held <= quota for held in intake.most_held.values())
    assert len(stage.begun) <= len(want) + repeated, "more was repeated than could be in flight"


def started(
    intake: MemoryIntake, stage: ControlledStage | DeafStage, slots: int
) -> tuple[LaneEngine, asyncio.Task[None]]:
    engine = LaneEngine("p", intake, stage, slots, frozenset({"first"}))  # type: ignore[arg-type]
    return engine, asyncio.create_task(engine.run())


async def crashed(
    engine: LaneEngine, run: asyncio.Task[None], stage: ControlledStage, intake: MemoryIntake
) -> None:
    """kill -9: nothing is drained or committed, and another process takes over."""
    intake.on_commit = lambda: None
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    engine._slots = 0
    for task in tuple(engine._tasks):
        task.cancel()
    await settle()
    assert not stage.running
    intake.window = Window()
    intake.assign()


async def test_what_is_queued_is_not_begun_when_partitions_go() -> None:
    """The drain waits for what runs and for nothing else; what is finished above the watermark
    is in the commit and does not run again."""
    keys: list[bytes | None] = [b"a", b"a", b"b", b"a", b"a"]
    intake = MemoryIntake(logs(["t"], 1, keys))
    stage = ControlledStage()
    engine, run = started(intake, stage, 2)
    await settle()
    assert set(stage.running) == {("t", 0, 0), ("t", 0, 2)}
    stage.running["t", 0, 2].set_result(None)
    await settle()
    drain = asyncio.create_task(engine.drain(30))
    await settle()
    stage.running["t", 0, 0].set_result(None)
    await drain
    await settle()
    assert not stage.running
    assert intake.window.watermark(Position("t", 0)) == 1
    intake.commit()
    intake.let_go()
    intake.assign()
    for _ in range(3):
        await settle()
        for finish in tuple(stage.running.values()):
            finish.set_result(None)
    await settle()
    assert [r.offset for r in stage.finished] == [2, 0, 1, 3, 4]
    await engine.stop(0)
    await run


async def test_a_full_window_goes_on_after_a_rebalance() -> None:
    """What was queued is dropped, so no completion of it wakes the engine."""
    intake = MemoryIntake(logs(["t"], 1, [b"a"] * 9))
    stage = ControlledStage()
    engine, run = started(intake, stage, 1)
    await settle()
    assert intake.window.in_flight == 4
    intake.revoking = True
    await engine.drain(0.001)
    await settle()
    intake.let_go()
    intake.assign()
    await settle()
    assert set(stage.running) == {("t", 0, 0)}
    await engine.stop(0)
    await run


async def test_a_call_that_outlives_its_assignment_frees_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its completion is void, so no commit follows that would begin what fills the window."""
    monkeypatch.setattr(lane, "_CANCEL_S", 0.0)
    monkeypatch.setattr(lane, "_DEAR_S", -1.0)
    intake = MemoryIntake(logs(["t"], 1, [b"a"] * 9))
    stage = DeafStage()
    engine, run = started(intake, stage, 1)
    await settle()
    intake.revoking = True
    await engine.drain(0)
    intake.let_go()
    intake.assign()
    await settle()
    assert (intake.window.in_flight, len(stage.begun)) == (4, 1)
    stage.gates[0].set_result(None)
    await settle()
    intake.commit()
    assert [r.offset for r in stage.begun] == [0, 0]
    for gate in stage.gates[1:]:
        gate.set_result(None)
    await engine.stop(0)
    await run


async def test_a_drain_is_bounded() -> None:
    """A record that hangs is given up after the drain's seconds, aloud, and is not done."""
    intake = MemoryIntake(logs(["t"], 1, [b"a", b"b"]))
    stage = ControlledStage()
    engine, run = started(intake, stage, 2)
    await settle()
    stage.running["t", 0, 1].set_result(None)
    with structlog.testing.capture_logs() as said:
        async with asyncio.timeout(5):
            await engine.drain(0.01)
    assert [(e["event"], e["log_level"], e["records"]) for e in said] == [("given_up", "error", 1)]
    assert not stage.running
    assert intake.window.watermark(Position("t", 0)) == 0
    assert [r.offset for r in stage.finished] == [1]
    await engine.stop(0)
    await run


async def test_a_dear_call_keeps_its_slot_until_it_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Issue: repeated model calls per kill are no more than the slots."""
    monkeypatch.setattr(lane, "_DEAR_S", -1.0)
    intake = MemoryIntake(logs(["t"], 1, [b"a", b"b", b"c", b"d"]))
    stage = ControlledStage()
    engine, run = started(intake, stage, 2)
    await settle()
    stage.running["t", 0, 0].set_result(None)
    await settle()
    assert set(stage.running) == {("t", 0, 1)}
    intake.commit()
    await settle()
    assert set(stage.running) == {("t", 0, 1), ("t", 0, 2)}
    await engine.stop(0)
    await run


async def test_a_short_call_does_not_wait_for_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only when as many as the slots are uncommitted besides those that run."""
    monkeypatch.setattr(lane, "_DEAR_S", 1e9)
    intake = MemoryIntake(logs(["t"], 1, [b"%d" % n for n in range(9)]))
    stage = ControlledStage()
    engine, run = started(intake, stage, 2)
    for _ in range(6):
        await settle()
        for finish in tuple(stage.running.values()):
            finish.set_result(None)
    await settle()
    assert len(stage.begun) == 4
    intake.commit()
    await settle()
    assert len(stage.begun) == 6
    await engine.stop(0)
    await run


async def test_an_old_assignments_completion_changes_nothing() -> None:
    """A record that outlives its assignment (it would not be cancelled) completes in vain."""
    intake = MemoryIntake(logs(["t"], 1, [b"a", b"b"]))
    tickets = [ticket for ticket, _ in await intake.poll(2, 0)]
    intake.let_go()
    intake.assign()
    again = [ticket for ticket, _ in await intake.poll(2, 0)]
    for ticket in tickets:
        intake.complete(ticket)
    assert intake.window.committable() == {}
    assert intake.window.uncommitted == 0
    for ticket in again:
        intake.complete(ticket)
    (mark,) = intake.window.committable().values()
    assert mark.offset == 2


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


async def test_large_values_are_not_held_by_the_hundred() -> None:
    """Intake ends at 32 MB and goes on as they are worked off, across a rebalance too."""
    value = bytes(4_194_304)
    made = {Position("t", p): [Record("t", p, n, 0, b"%d.%d" % (p, n), value, ())
                               for n in range(20)] for p in range(3)}  # fmt: skip
    intake = MemoryIntake(made)
    stage = ControlledStage()
    engine, run = started(intake, stage, 4)
    most = 0
    for step in range(500):
        await settle()
        most = max(most, intake.window.in_flight)
        if step == 5:
            intake.revoking = True
            await engine.drain(0.001)
            assert engine._shares.bytes_held == 0
            intake.let_go()
            intake.assign()
        intake.commit()
        if len({(r.partition, r.offset) for r in stage.finished}) == 60:
            break
        for name in sorted(stage.running)[:2]:
            stage.running[name].set_result(None)
    assert len({(r.partition, r.offset) for r in stage.finished}) == 60
    assert 8 <= most <= (32 + 8) // 4
    await settle()
    assert engine._shares.bytes_held == 0
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


async def test_a_failure_in_the_last_drain_is_raised() -> None:
    """`run` ends after the drain, with its failure; commits go on beside it until then."""
    intake = MemoryIntake(logs(["t"], 1, [b"a"]))
    stage = ControlledStage()
    engine, run = started(intake, stage, 2)
    await settle()
    stopping = asyncio.create_task(engine.stop(5))
    await settle()
    assert not run.done()
    next(iter(stage.running.values())).set_exception(RuntimeError("the key is gone"))
    await stopping
    with pytest.raises(RuntimeError, match="the key is gone"):
        await run


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


@pytest.mark.parametrize("ticks", range(8))
async def test_what_a_poll_brings_while_partitions_go_is_not_begun(ticks: int) -> None:
    """It was admitted just before; after the drain it would run without its partition."""
    intake = MemoryIntake({Position("t", 0): []})
    stage = ControlledStage()
    engine, run = started(intake, stage, 2)
    await settle()
    intake.logs[Position("t", 0)].append(record("t", 0, 0, b"a"))
    intake.arrived.set()
    for _ in range(ticks):
        await asyncio.sleep(0)
    intake.revoking = True
    await engine.drain(0)
    await settle()
    assert not stage.running
    await engine.stop(0)
    await run
