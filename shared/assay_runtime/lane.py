"""Lane engine for slow hops: many records at once, one at a time per key, any completion order.

What becomes of a record (its offset's states are in `window`):

    received ─► QUEUED in its key's lane ─► RUNNING, in a slot ─► SENT ─► DONE
                   │                           │                   └─ outputs confirmed
                   │ partitions go, SIGTERM    │ drain over
                   ▼                           ▼
                DROPPED                    GIVEN UP: cancelled; both are read again, by whoever
                                           has the partition, and neither is ever committed

- Slot and lane are free once a record is SENT: what is sent in order is kept in order.
- Dear calls count against the slots until a commit covers them, so a kill -9 repeats at most as
  many calls as there are slots. `repeatable` is that number at any moment.
- A failure stops dispatch and ends `run`; what runs is then drained like at any other end.

Invariants, property-tested in tests/property/test_lane_engine.py against an intake in memory: one
RUNNING per key; at most `slots` RUNNING; at most `4 × slots` QUEUED, RUNNING or SENT, and each
partition's share of it; nothing starts after `stop`; nothing of an old assignment has an effect.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable
from typing import Any

import structlog

from assay_runtime import metrics
from assay_runtime.failures import Stop
from assay_runtime.intake import Intake
from assay_runtime.lanes import Lanes
from assay_runtime.records import Position, Record, size_of
from assay_runtime.shares import Shares
from assay_runtime.stage import Stage
from assay_runtime.window import Ticket

log = structlog.get_logger()

_Item = tuple[Ticket, Record]

# A handler that does not end when it is cancelled is left behind after this.
_CANCEL_S = 1.0
# Between two commits. They are few even so: each takes 10 to 20 ms, and an idle lane makes none.
_COMMIT_S = 0.01
# Calls that take this long on average keep their slot until they are committed. Shorter ones
# would feel those 20 ms and are cheap to repeat: for them the bound is twice the slots.
_DEAR_S = 0.25
_WEIGHT = 1 / 16


def _size(item: _Item) -> int:
    return size_of(item[1])


class LaneEngine:
    """`slots` records run at once; records of one key queue in that key's lane until the outputs
    of the one before them are sent.

    Intake is bounded by 32 MB of records, by `4 × slots` admitted records and by a share of those
    per partition, read round-robin: one fetch brings up to a megabyte of one partition, which would
    fill the window and leave the other partitions' keys idle (research §6). Records of `first`
    topics go ahead.
    """

    def __init__(
        self, pipeline: str, intake: Intake, stage: Stage, slots: int, first: frozenset[str]
    ) -> None:
        self._pipeline = pipeline
        self._intake = intake
        self._window = intake.window
        self._stage = stage
        self._slots = slots
        self._shares = Shares(intake.window, 4 * slots, first)
        self._first = first
        self._lanes: Lanes[_Item] = Lanes()
        self._tasks: set[asyncio.Task[None]] = set()
        self._given_up: set[asyncio.Task[None]] = set()
        self._mean_s = _DEAR_S  # of a call, exponentially weighted
        self._awaited: frozenset[Position] = frozenset()
        self._was_full = False
        self._freed = asyncio.Event()
        self._failure: BaseException | None = None
        self._stopping = False
        self._drained = asyncio.Event()
        intake.commit_promptly(_COMMIT_S, self._dispatch)
        self._in_flight = metrics.IN_FLIGHT.labels(pipeline)
        self._seconds = metrics.HANDLE_SECONDS.labels(pipeline)

    async def run(self) -> None:
        """Until `stop` has drained; a Stop raised by any record ends it."""
        while not self._stopping:
            self._raise_failure()
            self._freed.clear()
            await self._take()
            if not self._stopping and self._failure is None:
                await self._wait()
        await self._drained.wait()  # commits go on for as long as this does
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    @property
    def repeatable(self) -> int:
        """Records begun that no commit covers: what a kill -9 would have handled again."""
        return len(self._tasks) + self._window.uncommitted

    async def _take(self) -> None:
        """Admit what is fetched already, up to each partition's share."""
        for position in self._shares.eligible():
            if room := self._shares.room(position):
                self._queue(await self._intake.poll(room, wait_ms=0, only=[position]))

    async def _wait(self) -> None:
        """Until a record comes to a partition that has room, or another gets room."""
        eligible = self._shares.eligible()
        waiters: list[asyncio.Task[Any]] = [asyncio.create_task(self._freed.wait())]
        if eligible or self._intake.revoking or not self._window.positions():
            # The next round takes the neighbours of what comes.
            poll = self._intake.poll(self._shares.few, 1_000, eligible)
            waiters.append(asyncio.create_task(poll))
        self._awaited, self._was_full = frozenset(eligible), self._shares.full
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._awaited = frozenset()
            for waiter in waiters:
                waiter.cancel()
            await asyncio.wait(waiters)
        for waiter in waiters[1:]:
            if not waiter.cancelled():
                self._queue(waiter.result())

    def _queue(self, items: list[_Item]) -> None:
        if self._stopping or self._intake.revoking:
            return  # admitted by a poll that was under way; left undone
        for item in items:
            record = item[1]
            key: Hashable = record.key
            if key is None:
                key = (record.topic, record.partition, record.offset)
            self._lanes.put(key, item, first=record.topic in self._first)
            self._shares.bytes_held += _size(item)
        self._dispatch()

    def _dispatch(self) -> None:
        while self._lanes.running < self._slots and self._failure is None:
            if self.repeatable >= self._slots * (1 if self._mean_s >= _DEAR_S else 2):
                return  # the next commit comes back here
            taken = self._lanes.take()
            if taken is None:
                return
            self._tasks.add(asyncio.create_task(self._run_one(*taken)))

    async def _run_one(self, key: Hashable, item: _Item) -> None:
        ticket, record = item
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        started = time.perf_counter()
        running = True
        try:
            confirmations = await self._stage.send([record])
            self._mean_s += _WEIGHT * (time.perf_counter() - started - self._mean_s)
            # Sent in order is kept in order, so slot and key need not wait for the broker.
            self._lanes.done(key)
            running = False
            self._dispatch()
            await self._stage.confirm(confirmations)
            self._intake.complete(ticket)
            self._seconds.observe(time.perf_counter() - started)
        except asyncio.CancelledError:
            if task not in self._given_up:
                self._failure = self._failure or Stop("a record was cancelled by nobody")
        except BaseException as error:
            self._failure = self._failure or error
        finally:
            self._tasks.discard(task)
            self._given_up.discard(task)
            if running:
                self._lanes.done(key)
            self._dispatch()  # no commit follows what completes in vain, for an old assignment
            self._shares.bytes_held -= _size(item)
            self._in_flight.set(self._window.in_flight)
            if self._worth_waking(ticket.position):
                self._freed.set()

    def _worth_waking(self, position: Position) -> bool:
        """Whether a completed record gives `run` something to read that it does not wait for."""
        if self._failure is not None or not self._window.in_flight:
            return True
        if self._shares.full:
            return False
        if self._was_full:
            return True
        return position not in self._awaited and self._shares.has_room(position)

    async def drain(self, seconds: float) -> None:
        """Drop what is queued, let what runs finish within `seconds`, give up the rest undone."""
        self._shares.bytes_held -= sum(map(_size, self._lanes.forget()))
        try:
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self._give_up(seconds)
        self._freed.set()  # what was dropped completes nothing that would wake `run`

    async def _give_up(self, seconds: float) -> None:
        late = set(self._tasks)
        self._given_up |= late
        for task in late:
            task.cancel()
        if late:
            log.error("given_up", pipeline=self._pipeline, records=len(late), drain_s=seconds)
            _, deaf = await asyncio.wait(late, timeout=_CANCEL_S)
            if deaf:
                log.error("records_do_not_end", pipeline=self._pipeline, running=len(deaf))

    async def stop(self, seconds: float) -> None:
        """No further intake; what runs gets `seconds`."""
        self._stopping = True
        self._freed.set()
        await self.drain(seconds)
        self._drained.set()
