"""What is not due is held back, alone and not for ever (DESIGN §3)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import TopicPartition

from assay_runtime import retry_intake
from assay_runtime.retry_intake import DueConsumer

A, B = TopicPartition("t.svc.retry.1", 0), TopicPartition("t.svc.retry.2", 0)


@dataclass
class Raw:
    """What the consumer hands out; due at `due_s`."""

    offset: int
    due_s: float
    value: bytes | None = None
    key: bytes | None = None

    @property
    def headers(self) -> Any:
        return (("assay.retry.not-before", b"%d" % int(self.due_s * 1000)),)


@dataclass
class Logs:
    """Stands in for aiokafka's consumer: partitions with a position each."""

    records: dict[TopicPartition, list[Raw]]
    at: dict[TopicPartition, int] = field(default_factory=dict)
    asked: list[tuple[TopicPartition, ...]] = field(default_factory=list)
    revoked: set[TopicPartition] = field(default_factory=set)

    def assignment(self) -> set[TopicPartition]:
        return set(self.records) - self.revoked

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.at[tp] = offset

    async def getmany(
        self, *tps: TopicPartition, timeout_ms: int, max_records: int | None
    ) -> dict[TopicPartition, list[Raw]]:
        self.asked.append(tps)
        found: dict[TopicPartition, list[Raw]] = {}
        for tp in tps or self.assignment():
            start = self.at.get(tp, 0)
            batch = self.records[tp][start : start + (max_records or 1_000)]
            if batch:
                found[tp] = batch
                self.at[tp] = start + len(batch)
        if not found:
            await asyncio.sleep(timeout_ms / 1000)
        return found


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def offsets(fetched: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[int]]:
    return {tp: [raw.offset for raw in batch] for tp, batch in fetched.items()}


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_a_head_that_waits_holds_its_partition_only(clock: Clock) -> None:
    logs = Logs({A: [Raw(0, 1_005), Raw(1, 1_006)], B: [Raw(0, 900), Raw(1, 1_060)]})
    consumer = DueConsumer(logs, 300, clock, clock)
    assert offsets(await consumer.getmany(timeout_ms=5)) == {B: [0]}
    assert consumer.holds_back
    assert offsets(await consumer.getmany(A, timeout_ms=5)) == {}
    clock.now = 1_005
    assert offsets(await consumer.getmany(A, B, timeout_ms=5)) == {A: [0]}
    clock.now = 1_060
    assert offsets(await consumer.getmany(timeout_ms=5)) == {A: [1], B: [1]}
    assert not consumer.holds_back


async def test_a_partition_that_waits_is_not_fetched_from(clock: Clock) -> None:
    """Else a backlog would be read into memory while its head waits."""
    logs = Logs({A: [Raw(n, 1_005) for n in range(10)], B: []})
    consumer = DueConsumer(logs, 300, clock, clock)
    await consumer.getmany(timeout_ms=5, max_records=2)
    await consumer.getmany(timeout_ms=5, max_records=2)
    assert logs.asked[1:] == [(B,)]
    assert logs.at[A] == 2
    clock.now = 1_005
    assert offsets(await consumer.getmany(A, timeout_ms=5, max_records=1)) == {A: [0]}
    assert offsets(await consumer.getmany(A, timeout_ms=5, max_records=1)) == {A: [1]}
    assert offsets(await consumer.getmany(A, timeout_ms=5, max_records=1)) == {A: [2]}


async def test_a_poll_ends_when_the_head_is_due() -> None:
    """No timer stands in the way: with a second to wait in vain, the record comes in time."""
    loop = asyncio.get_running_loop()
    logs = Logs({A: [Raw(0, loop.time() + 0.1)]})
    consumer = DueConsumer(logs, 300, loop.time)
    assert await consumer.getmany(A, timeout_ms=5_000) == {}
    async with asyncio.timeout(2):
        assert offsets(await consumer.getmany(A, timeout_ms=5_000)) == {A: [0]}


async def test_a_clock_that_is_ahead_holds_nothing_for_longer_than_the_longest_wait(
    clock: Clock,
) -> None:
    logs = Logs({A: [Raw(0, 999_999)]})
    consumer = DueConsumer(logs, 60, clock, clock)
    assert await consumer.getmany(timeout_ms=5) == {}
    clock.now += 60
    assert offsets(await consumer.getmany(timeout_ms=5)) == {A: [0]}


async def test_a_clock_set_back_holds_nothing_for_longer(clock: Clock) -> None:
    """An hour back while a record waits: it is due after its wait, not an hour later."""
    ticks = Clock()
    consumer = DueConsumer(Logs({A: [Raw(0, 1_010)], B: []}), 300, clock, ticks)
    assert offsets(await consumer.getmany(timeout_ms=1)) == {}
    clock.now -= 3_600
    ticks.now += 10
    assert offsets(await consumer.getmany(timeout_ms=1)) == {A: [0]}


async def test_what_is_held_back_is_not_passed(clock: Clock) -> None:
    """Its position is the first record that waits, though the consumer has read it."""
    consumer = DueConsumer(Logs({A: [Raw(4, 900), Raw(5, 1_060)]}), 300, clock, clock)
    assert offsets(await consumer.getmany(timeout_ms=1)) == {A: [4]}
    assert await consumer.position(A) == 5


async def test_a_seek_forgets_what_was_held(clock: Clock) -> None:
    """After an error, or a new assignment, everything is read again from where it is wanted."""
    logs = Logs({A: [Raw(0, 1_005), Raw(1, 1_006)]})
    consumer = DueConsumer(logs, 300, clock, clock)
    await consumer.getmany(timeout_ms=5)
    consumer.seek(A, 1)
    clock.now = 1_010
    assert offsets(await consumer.getmany(timeout_ms=5)) == {A: [1]}


async def test_what_is_revoked_is_not_handed_out(clock: Clock) -> None:
    logs = Logs({A: [Raw(0, 1_005)], B: []})
    consumer = DueConsumer(logs, 300, clock, clock)
    await consumer.getmany(timeout_ms=5)
    logs.revoked.add(A)
    clock.now = 1_010
    assert await consumer.getmany(timeout_ms=5) == {}
    assert not consumer.holds_back


async def test_a_cancelled_wait_has_taken_nothing(clock: Clock) -> None:
    """The lane engine cancels polls whenever a slot is free."""
    logs = Logs({A: [Raw(0, 1_005)]})
    consumer = DueConsumer(logs, 300, clock, clock)
    await consumer.getmany(timeout_ms=5)
    waiting = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    clock.now = 1_010
    assert offsets(await consumer.getmany(timeout_ms=5)) == {A: [0]}


SHARE = retry_intake._HELD_BYTES // 2


def held_bytes(consumer: DueConsumer) -> int:
    return sum(len(raw.value or b"") for held in consumer._held.values() for _, raw in held)


async def read_in_time(consumer: DueConsumer, clock: Clock, until: float) -> list[Any]:
    """When which records were handed out, with a poll each second."""
    found: list[Any] = []
    while clock.now < until:
        for tp, batch in (await consumer.getmany(timeout_ms=0, max_records=4)).items():
            found += [(tp, raw.offset, clock.now) for raw in batch]
        assert held_bytes(consumer) <= 2 * SHARE
        clock.now += 1
    return found


@pytest.mark.parametrize("size", [SHARE // 3, SHARE + 1], ids=["three fit in", "not even one"])
async def test_what_waits_is_bounded_in_bytes(clock: Clock, size: int) -> None:
    """The rest stays with the broker; all of it comes, in order, and when it is due."""
    value = bytes(size)
    logs = Logs({tp: [Raw(n, 1_010 + 5 * n, value) for n in range(8)] for tp in (A, B)})
    consumer = DueConsumer(logs, 300, clock, clock)
    found = await read_in_time(consumer, clock, 1_050)
    for tp in (A, B):
        own = [(offset, at) for place, offset, at in found if place == tp]
        assert own == [(n, 1_010 + 5 * n) for n in range(8)]
    assert not consumer.holds_back


async def test_what_is_left_with_the_broker_is_not_fetched_before_it_is_due(clock: Clock) -> None:
    """Else it would be read over and over; nor is it passed, or a stall."""
    logs = Logs({A: [Raw(0, 1_010, bytes(3 * SHARE))], B: []})
    consumer = DueConsumer(logs, 300, clock, clock)
    for _ in range(3):
        assert await consumer.getmany(timeout_ms=0) == {}
    assert [A in asked for asked in logs.asked] == [True, False, False]
    assert (consumer.holds_back, logs.at[A]) == (True, 0)
    clock.now = 1_010
    assert not consumer.holds_back, "from now on it is work left undone"
    assert offsets(await consumer.getmany(timeout_ms=0)) == {A: [0]}


async def test_what_is_left_with_the_broker_waits_once(clock: Clock) -> None:
    """Whoever wrote it may have a clock that is ahead: its longest wait does not begin anew."""
    logs = Logs({A: [Raw(n, 999_999, bytes(3 * SHARE)) for n in range(6)], B: []})
    consumer = DueConsumer(logs, 60, clock, clock)
    found = await read_in_time(consumer, clock, 1_130)
    assert found == [(A, n, 1_060 if n < 4 else 1_121) for n in range(6)]
    assert logs.at[A] == 6


async def test_what_is_left_with_the_broker_is_forgotten_with_its_partition(clock: Clock) -> None:
    logs = Logs({A: [Raw(0, 1_010, bytes(3 * SHARE))], B: []})
    consumer = DueConsumer(logs, 300, clock, clock)
    await consumer.getmany(timeout_ms=0)
    logs.revoked.add(A)
    await consumer.getmany(timeout_ms=0)
    assert not consumer.holds_back
    logs.revoked.clear()
    logs.records[A] = [Raw(0, 900)]
    assert offsets(await consumer.getmany(timeout_ms=0)) == {A: [0]}
