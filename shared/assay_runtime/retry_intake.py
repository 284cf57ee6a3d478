"""Reads retry topics: a record is handed out when it is due, and never before."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Set
from itertools import islice
from typing import Any, NamedTuple

from aiokafka import TopicPartition

from assay_runtime.intake import Intake
from assay_runtime.records import size_of
from assay_runtime.retries import not_before_s

# Of what is held back, over all partitions, which have an equal share each. It may be held for
# minutes, and is none of what a lane has admitted.
_HELD_BYTES = 16_777_216


class _Left(NamedTuple):
    """Where a partition's share ended: from `offset` on it is read again once that is `due`, and
    what was fetched already, up to `last`, is so by `latest`."""

    due: float
    offset: int
    last: int
    latest: float

    def bound(self, offset: int) -> float:
        """When a record is due at the latest, since its wait has begun before."""
        if offset > self.last:
            return float("inf")
        return self.latest if offset > self.offset else self.due


class DueConsumer:
    """An aiokafka consumer whose `getmany` holds back what is not due yet, and beyond 16 MB of
    that leaves it with the broker.

    The wait of a retry topic is the same for all its records, so the head of a partition is due
    first, and a partition is not fetched from while its head waits. Whoever wrote the head may
    have a clock that is ahead, and our own may be set back: nothing is held for longer than
    `longest_s` after it was fetched, by `ticks`, which only go on.
    """

    def __init__(
        self,
        consumer: Any,
        longest_s: float,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._longest_s = longest_s
        self._clock = clock
        self._ticks = ticks
        self._held: dict[TopicPartition, deque[tuple[float, Any]]] = {}
        self._left: dict[TopicPartition, _Left] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    @property
    def holds_back(self) -> bool:
        """Whether a partition waits for its head to be due."""
        now = self._ticks()
        return bool(self._held) or any(left.due > now for left in self._left.values())

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._forget({tp})
        self._consumer.seek(tp, offset)

    async def position(self, tp: TopicPartition) -> int:
        """The first offset that was not handed out."""
        held = self._held.get(tp)
        return int(held[0][1].offset if held else await self._consumer.position(tp))

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Any]]:
        """As aiokafka's; a call that is cancelled has taken nothing."""
        assigned = self._consumer.assignment()
        self._forget((self._held.keys() | self._left.keys()) - assigned)
        if due := self._due(partitions, max_records):
            return due
        wanted = partitions or tuple(assigned)
        until_due = {tp: self._until_due(tp) for tp in wanted}
        free = [tp for tp in wanted if until_due[tp] is None]
        wait_s = min([timeout_ms / 1000, *(s for s in until_due.values() if s is not None)])
        if wanted and not free:
            await asyncio.sleep(wait_s)
            return self._due(partitions, max_records)
        fetched = await self._consumer.getmany(
            *free, timeout_ms=int(wait_s * 1000), max_records=max_records
        )
        for tp, records in fetched.items():
            self._hold(tp, records)
        due = self._due(partitions, max_records)
        self._leave(fetched.keys())
        return due

    def _forget(self, tps: Set[TopicPartition]) -> None:
        for tp in tps:
            self._held.pop(tp, None)
            self._left.pop(tp, None)

    def _until_due(self, tp: TopicPartition) -> float | None:
        """Seconds until the head of a partition is due, None for one that is to be fetched."""
        now = self._ticks()
        if held := self._held.get(tp):
            return max(0.0, held[0][0] - now)
        left = self._left.get(tp)
        return left.due - now if left and left.due > now else None

    def _hold(self, tp: TopicPartition, records: list[Any]) -> None:
        now, ticks = self._clock(), self._ticks()
        left = self._left.get(tp)
        held = self._held[tp] = deque()
        for raw in records:
            due = ticks + min(_due_at(raw) - now, self._longest_s)
            held.append((min(due, left.bound(raw.offset)) if left else due, raw))

    def _leave(self, tps: Set[TopicPartition]) -> None:
        """What is more than a partition's share is read again when it is due."""
        assigned = self._consumer.assignment()
        self._forget(tps - assigned)
        for tp in tps & self._held.keys():
            held, kept, room = self._held[tp], 0, _HELD_BYTES // len(assigned)
            for _, raw in held:
                room -= size_of(raw)
                if room < 0:
                    break
                kept += 1
            if kept < len(held):
                due, raw = held[kept]
                self._consumer.seek(tp, raw.offset)
                before = self._left.get(tp)
                if before and before.last >= raw.offset:
                    left = before._replace(due=due, offset=raw.offset)
                else:
                    latest = self._ticks() + self._longest_s
                    left = _Left(due, raw.offset, held[-1][1].offset, latest)
                self._left[tp] = left
                self._held[tp] = deque(islice(held, kept))
                if not kept:
                    del self._held[tp]

    def _due(
        self, partitions: tuple[TopicPartition, ...], max_records: int | None
    ) -> dict[TopicPartition, list[Any]]:
        room = max_records if max_records is not None else float("inf")
        now = self._ticks()
        due: dict[TopicPartition, list[Any]] = {}
        for tp in partitions or tuple(self._held):
            held = self._held.get(tp)
            while held and held[0][0] <= now and room > 0:
                due.setdefault(tp, []).append(held.popleft()[1])
                room -= 1
            if held is not None and not held:
                del self._held[tp]
        return due


class RetryIntake(Intake):
    """Intake of retry topics: nothing is admitted before it is due."""

    async def start(self) -> None:
        await super().start()
        longest_s = max(self._kafka.retry_delays_s, default=0.0)
        self._consumer = DueConsumer(self._consumer, longest_s)

    async def waiting(self) -> str | None:
        """As Intake's; waiting until something is due is no work left undone."""
        work = await super().waiting()
        return None if self._consumer.holds_back else work


def _due_at(raw: Any) -> float:
    return not_before_s(raw.headers)
