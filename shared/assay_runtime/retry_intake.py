"""Reads retry topics: a record is handed out when it is due, and never before."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from aiokafka import TopicPartition

from assay_runtime.intake import Intake
from assay_runtime.retries import not_before_s


class DueConsumer:
    """An aiokafka consumer whose `getmany` holds back what is not due yet.

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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    @property
    def holds_back(self) -> bool:
        """Whether a partition waits for its head to be due."""
        return bool(self._held)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._held.pop(tp, None)
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
        for tp in self._held.keys() - assigned:
            del self._held[tp]
        if due := self._due(partitions, max_records):
            return due
        wanted = partitions or tuple(assigned)
        free = [tp for tp in wanted if tp not in self._held]
        wait_s = min([timeout_ms / 1000, *(self._until_due(tp) for tp in wanted)])
        if wanted and not free:
            await asyncio.sleep(wait_s)
        else:
            fetched = await self._consumer.getmany(
                *free, timeout_ms=int(wait_s * 1000), max_records=max_records
            )
            now, ticks = self._clock(), self._ticks()
            for tp, records in fetched.items():
                self._held[tp] = deque(
                    (ticks + min(_due_at(raw) - now, self._longest_s), raw) for raw in records
                )
        return self._due(partitions, max_records)

    def _until_due(self, tp: TopicPartition) -> float:
        """Seconds until the head of a held partition is due, endless for one that is not held."""
        held = self._held.get(tp)
        return max(0.0, held[0][0] - self._ticks()) if held else float("inf")

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
