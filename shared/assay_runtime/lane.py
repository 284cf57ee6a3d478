"""Lane engine for slow hops: many records at once, one at a time per key, any completion order."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from assay_runtime import metrics
from assay_runtime.intake import Intake
from assay_runtime.records import Position, Record
from assay_runtime.stage import Stage
from assay_runtime.window import Ticket

_Item = tuple[Ticket, Record]


class LaneEngine:
    """`slots` records run at once; records of one key queue in that key's lane.

    Intake is bounded by `4 × slots` admitted records and by a share of that per partition, read
    round-robin: one fetch brings up to a megabyte of one partition, which would fill the window
    and leave the other partitions' keys idle (research §6). Records of `first` topics go ahead.
    """

    def __init__(
        self, pipeline: str, intake: Intake, stage: Stage, slots: int, first: frozenset[str]
    ) -> None:
        self._pipeline = pipeline
        self._intake = intake
        self._stage = stage
        self._slots = slots
        self._cap = 4 * slots
        self._first = first
        self._lanes: dict[bytes, deque[_Item]] = {}
        self._ready: deque[bytes] = deque()
        self._ready_first: deque[bytes] = deque()
        self._running: dict[bytes, asyncio.Task[None]] = {}
        self._freed = asyncio.Event()
        self._failure: BaseException | None = None
        self._stopping = False
        self._rotation = 0

    async def run(self) -> None:
        """Until `stop`; a Stop raised by any record ends it."""
        while not self._stopping:
            if self._failure is not None:
                raise self._failure
            self._freed.clear()
            eligible = self._eligible()
            if not eligible and self._intake.window.positions():
                await self._wait_freed(0.5)
                continue
            if not await self._take(eligible):
                await self._wait_for_records(eligible)
        if self._failure is not None:
            raise self._failure

    def _eligible(self) -> list[tuple[Position, int]]:
        """Partitions with room left, rotated so that each is first in turn; `first` topics lead."""
        window = self._intake.window
        positions = window.positions()
        if not positions or window.in_flight >= self._cap:
            return []
        quota = max(2, -(-self._cap // len(positions)))
        self._rotation = (self._rotation + 1) % len(positions)
        turned = positions[self._rotation :] + positions[: self._rotation]
        room = [(p, quota - window.held(p)) for p in turned if window.held(p) < quota]
        return sorted(room, key=lambda item: item[0].topic not in self._first)

    async def _take(self, eligible: list[tuple[Position, int]]) -> bool:
        """Admit what is already fetched of each partition, up to its share."""
        took = False
        for position, room in eligible:
            free = self._cap - self._intake.window.in_flight
            if free <= 0:
                break
            for item in await self._intake.poll(min(room, free), wait_ms=0, only=[position]):
                self._queue(item)
                took = True
        return took

    async def _wait_for_records(self, eligible: list[tuple[Position, int]]) -> None:
        """Block until a record comes; one is taken, the next round takes its neighbours."""
        only = [position for position, _ in eligible]
        for item in await self._intake.poll(1, wait_ms=100, only=only):
            self._queue(item)

    async def _wait_freed(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._freed.wait()
        except TimeoutError:
            pass

    def _queue(self, item: _Item) -> None:
        record = item[1]
        key = record.key if record.key is not None else f"{record.topic}/{record.offset}".encode()
        lane = self._lanes.get(key)
        if lane is None:
            self._lanes[key] = deque([item])
            (self._ready_first if record.topic in self._first else self._ready).append(key)
            self._dispatch()
        elif record.topic in self._first:
            lane.appendleft(item)
        else:
            lane.append(item)

    def _dispatch(self) -> None:
        while len(self._running) < self._slots and (self._ready_first or self._ready):
            key = (self._ready_first or self._ready).popleft()
            item = self._lanes[key].popleft()
            self._running[key] = asyncio.create_task(self._run_one(key, item))

    async def _run_one(self, key: bytes, item: _Item) -> None:
        ticket, record = item
        started = time.perf_counter()
        try:
            await self._stage.run([record])
            self._intake.complete(ticket)
            metrics.HANDLE_SECONDS.labels(self._pipeline).observe(time.perf_counter() - started)
        except asyncio.CancelledError:
            pass  # given up on a rebalance or shutdown; it will be read again
        except BaseException as error:
            self._failure = self._failure or error
        finally:
            del self._running[key]
            if self._lanes.get(key):
                self._ready.append(key)
            else:
                self._lanes.pop(key, None)
            self._dispatch()
            self._freed.set()
            metrics.IN_FLIGHT.labels(self._pipeline).set(self._intake.window.in_flight)

    async def drain(self, seconds: float) -> None:
        """Forget what is queued, give what runs `seconds` to finish, give the rest up undone."""
        self._ready.clear()
        self._ready_first.clear()
        for key in list(self._lanes):
            if key in self._running:
                self._lanes[key].clear()
            else:
                del self._lanes[key]
        tasks = list(self._running.values())
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def stop(self, seconds: float) -> None:
        """No further intake; what runs gets `seconds`."""
        self._stopping = True
        self._freed.set()
        await self.drain(seconds)
