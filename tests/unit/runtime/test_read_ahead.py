"""Reading ahead of the engine: order, bounds, errors and seeks, over a consumer in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CorruptRecordException, OffsetOutOfRangeError
from aiokafka.structs import ConsumerRecord

from assay_runtime.read_ahead import ReadAhead

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
SIZE = 500


class Broker:
    """A consumer over logs that keep only their newest `keeps` records."""

    def __init__(self) -> None:
        self.logs = {ONE: 0, TWO: 0}
        self.keeps = 1_000
        self.position = {ONE: 0, TWO: 0}
        self.assigned = {ONE, TWO}
        self.fails: Exception | None = None
        self.stopped = False

    def assignment(self) -> set[TopicPartition]:
        return self.assigned

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.position[tp] = offset

    async def stop(self) -> None:
        self.stopped = True

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, Any]:
        for _ in range(timeout_ms):
            if self.fails is not None:
                error, self.fails = self.fails, None
                raise error
            found: dict[TopicPartition, list[Any]] = {}
            for tp in sorted(self.assigned):
                at = self.position[tp]
                if at < self.logs[tp] - self.keeps:
                    raise OffsetOutOfRangeError({tp: at})
                records = [row(tp, n) for n in range(at, self.logs[tp])][:max_records]
                self.position[tp] += len(records)
                if records:
                    found[tp] = records
            if found:
                return found
            await asyncio.sleep(0.001)
        return {}


def row(tp: TopicPartition, offset: int) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord(tp.topic, tp.partition, offset, 0, 0, None, b"", 0, -1, SIZE, ())


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
async def ahead(broker: Broker) -> AsyncIterator[ReadAhead]:
    made = ReadAhead(broker, 10 * (SIZE + 1_000))
    yield made
    await made.stop()
    assert broker.stopped


def offsets(found: dict[TopicPartition, list[Any]]) -> list[tuple[int, int]]:
    return [(tp.partition, record.offset) for tp, records in found.items() for record in records]


async def settle() -> None:
    await asyncio.sleep(0.02)


async def test_what_the_broker_has_dropped_by_then_is_kept(
    broker: Broker, ahead: ReadAhead
) -> None:
    """Issue item 4: the engine is slower than the publisher, and the broker keeps three."""
    broker.keeps = 3
    for _ in range(4):
        broker.logs[ONE] += 2
        await settle()
    found = [pair for _ in range(3) for pair in offsets(await ahead.getmany(max_records=3))]
    assert found == [(0, n) for n in range(8)]


async def test_memory_is_bounded(broker: Broker, ahead: ReadAhead) -> None:
    """It stops at ten and goes on when some are taken; one reading may exceed the bound."""
    broker.logs[ONE] = 10
    await settle()
    broker.logs[TWO] = 5
    await settle()
    assert broker.position == {ONE: 10, TWO: 0}
    assert len(offsets(await ahead.getmany(max_records=1))) == 1
    await settle()
    assert broker.position == {ONE: 10, TWO: 5}


async def test_only_some_partitions(broker: Broker, ahead: ReadAhead) -> None:
    broker.logs = {ONE: 2, TWO: 2}
    await settle()
    assert offsets(await ahead.getmany(TWO, max_records=9)) == [(1, 0), (1, 1)]
    assert offsets(await ahead.getmany(TWO, timeout_ms=20, max_records=9)) == []
    assert offsets(await ahead.getmany(max_records=9)) == [(0, 0), (0, 1)]


async def test_a_seek_forgets_what_was_read(broker: Broker, ahead: ReadAhead) -> None:
    broker.logs = {ONE: 4, TWO: 2}
    await settle()
    ahead.seek(ONE, 3)
    found = await ahead.getmany(timeout_ms=500, max_records=9)
    await settle()
    more = await ahead.getmany(max_records=9)
    assert sorted(offsets(found) + offsets(more)) == [(0, 3), (1, 0), (1, 1)]


async def test_a_partition_that_went_is_forgotten(broker: Broker, ahead: ReadAhead) -> None:
    broker.logs = {ONE: 2, TWO: 2}
    await settle()
    broker.assigned = {TWO}
    assert offsets(await ahead.getmany(max_records=9)) == [(1, 0), (1, 1)]
    assert ahead._bytes == 0


async def test_an_overrun_is_told_after_what_was_read_before_it(
    broker: Broker, ahead: ReadAhead
) -> None:
    """Told earlier, the records still held would be counted as lost and passed over."""
    broker.logs[ONE] = 2
    await settle()
    broker.keeps = 1
    broker.logs[ONE] = 9
    await settle()
    assert offsets(await ahead.getmany(TWO, timeout_ms=20, max_records=9)) == []
    assert offsets(await ahead.getmany(max_records=9)) == [(0, 0), (0, 1)]
    with pytest.raises(OffsetOutOfRangeError) as raised:
        await ahead.getmany(timeout_ms=500)
    assert raised.value.args[0] == {ONE: 2}
    ahead.seek(ONE, 8)
    assert offsets(await ahead.getmany(timeout_ms=500)) == [(0, 8)]


async def test_any_other_error_is_told_once(broker: Broker, ahead: ReadAhead) -> None:
    broker.fails = CorruptRecordException()
    with pytest.raises(CorruptRecordException):
        await ahead.getmany(timeout_ms=500)
    broker.logs[ONE] = 1
    assert offsets(await ahead.getmany(timeout_ms=500)) == [(0, 0)]


async def test_a_cancelled_call_has_taken_nothing(broker: Broker, ahead: ReadAhead) -> None:
    waiting = asyncio.create_task(ahead.getmany(timeout_ms=10_000))
    await settle()
    broker.logs[ONE] = 1
    while not ahead._arrived.is_set():
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert offsets(await ahead.getmany(timeout_ms=500)) == [(0, 0)]
