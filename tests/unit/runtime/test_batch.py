"""The batch engine between a poll and a drain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from assay_runtime.batch import BatchEngine
from assay_runtime.failures import Stop
from assay_runtime.records import Position, Record
from assay_runtime.window import Ticket, Window

PLACE = Position("t", 0)


class Polls:
    """Gives one batch per entry; waits when there is none."""

    def __init__(self, make_record: Any) -> None:
        self.window = Window()
        self.window.assign({PLACE: 0})
        self.batches: asyncio.Queue[int] = asyncio.Queue()
        self.next = 0
        self.make_record = make_record

    async def poll(self, max_records: int, wait_ms: int) -> list[tuple[Ticket, Record]]:
        admitted = []
        for _ in range(await self.batches.get()):
            ticket = self.window.admit(PLACE, self.next)
            assert ticket is not None
            admitted.append((ticket, self.make_record(self.next)))
            self.next += 1
        return admitted

    def complete(self, ticket: Ticket) -> None:
        self.window.complete(ticket)


class Held:
    """A stage that waits to be let go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, records: Sequence[Record]) -> None:
        self.entered.set()
        await self.gate


async def engine(make_record: Any) -> tuple[BatchEngine, Polls, Held, asyncio.Task[None]]:
    polls, held = Polls(make_record), Held()
    made = BatchEngine("p", polls, held, 10)  # type: ignore[arg-type]
    polls.batches.put_nowait(3)
    run = asyncio.create_task(made.run())
    await held.entered.wait()
    return made, polls, held, run


async def test_a_drain_returns_after_the_batch_is_completed(make_record: Any) -> None:
    """The commit that follows must see it."""
    made, polls, held, run = await engine(make_record)
    drain = asyncio.create_task(made.drain(30))
    await asyncio.sleep(0)
    held.gate.set_result(None)
    await drain
    assert polls.window.watermark(PLACE) == 3
    run.cancel()


async def test_a_late_batch_is_given_up_undone_and_the_engine_goes_on(make_record: Any) -> None:
    """A rebalance takes it away; the next assignment's batches are handled."""
    made, polls, held, run = await engine(make_record)
    await made.drain(0.01)
    assert polls.window.watermark(PLACE) == 0
    held.gate, held.entered = asyncio.get_running_loop().create_future(), asyncio.Event()
    polls.window.assign({PLACE: 3})
    polls.batches.put_nowait(1)
    await held.entered.wait()
    held.gate.set_result(None)
    while polls.window.watermark(PLACE) != 4:
        await asyncio.sleep(0)
    run.cancel()


async def test_a_batch_cancelled_by_nobody_is_a_failure(make_record: Any) -> None:
    """Passed over, its offsets would hold the watermark for ever."""
    _, _, held, run = await engine(make_record)
    held.gate.cancel()
    with pytest.raises(Stop, match="cancelled by nobody"):
        await run


async def test_a_stop_of_the_stage_ends_the_engine(make_record: Any) -> None:
    _, polls, held, run = await engine(make_record)
    held.gate.set_exception(Stop("key gone"))
    with pytest.raises(Stop, match="key gone"):
        await run
    assert polls.window.watermark(PLACE) == 0


async def test_nothing_starts_after_stop(make_record: Any) -> None:
    """A poll under way when the engine is stopped brings a batch that is not begun."""
    made, polls, held, run = await engine(make_record)
    held.gate.set_result(None)
    while polls.window.watermark(PLACE) != 3:
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)  # until it polls again
    held.entered.clear()
    await made.stop(1)
    polls.batches.put_nowait(2)
    await run
    assert not held.entered.is_set()
    assert polls.window.watermark(PLACE) == 3


async def test_a_cancelled_engine_leaves_no_batch_running(make_record: Any) -> None:
    """The watchdog ends the engine; its batch must not go on publishing."""
    _, _, held, run = await engine(make_record)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    for _ in range(5):
        await asyncio.sleep(0)
    assert held.gate.cancelled()
