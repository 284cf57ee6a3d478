"""Reads on into memory while the engine is busy, for a broker that keeps little.

The embedded broker drops the oldest records of a partition beyond about 5 MB, read or not. Behind
a handler that is slower than its publishers, records are safe only once they are out of it. What
is read ahead is not admitted and not committed: after a crash the broker is asked for it again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

# What one poll brings: while a handler works through it, often without a break, nothing is read.
_RECORDS = 100
_POLL_BYTES = 1_000_000


class ReadAhead:
    """An aiokafka consumer with a buffer of at most about `most_bytes`; the rest is as it was.

    What went wrong while reading is raised by `getmany`, and not before everything that was read
    of those partitions has been handed out: positions are then where the caller thinks.
    """

    def __init__(self, consumer: Any, most_bytes: int) -> None:
        self._consumer = consumer
        self._most_bytes = most_bytes
        self._held: dict[TopicPartition, deque[Any]] = {}
        self._bytes = 0
        self._error: Exception | None = None
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._consumer.seek(tp, offset)
        self._drop(tp)

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._consumer.stop()

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Any]]:
        """As aiokafka's; a call that is cancelled has taken nothing."""
        found = self._taken(partitions, max_records)
        if not found and self._error is None and timeout_ms:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    while not found and self._error is None:
                        self._arrived.clear()
                        await self._arrived.wait()
                        found = self._taken(partitions, max_records)
        if not found and self._error is not None and not self._before_error():
            error, self._error = self._error, None
            self._room.set()
            raise error
        return found

    async def _read(self) -> None:
        while True:
            while self._error is not None or self._bytes >= self._most_bytes:
                self._room.clear()
                await self._room.wait()
            try:
                fetched = await self._consumer.getmany(timeout_ms=1_000, max_records=_RECORDS)
            except Exception as error:
                self._error = error
                fetched = {}
            for tp, records in fetched.items():
                self._held.setdefault(tp, deque()).extend(records)
                self._bytes += sum(map(_size, records))
            self._arrived.set()

    def _taken(
        self, partitions: tuple[TopicPartition, ...], max_records: int | None
    ) -> dict[TopicPartition, list[Any]]:
        for tp in self._held.keys() - self._consumer.assignment():
            self._drop(tp)
        room, size = max_records if max_records is not None else _RECORDS, 0
        found: dict[TopicPartition, list[Any]] = {}
        for tp in partitions or tuple(self._held):
            held = self._held.get(tp)
            while held and room and size < _POLL_BYTES:
                raw = held.popleft()
                found.setdefault(tp, []).append(raw)
                size += _size(raw)
                room -= 1
        if found:
            self._bytes -= size
            self._room.set()
        return found

    def _before_error(self) -> bool:
        """Whether records are held that were read before what went wrong."""
        if isinstance(self._error, OffsetOutOfRangeError):
            return any(self._held.get(tp) for tp in self._error.args[0])
        return any(self._held.values())

    def _drop(self, tp: TopicPartition) -> None:
        self._bytes -= sum(map(_size, self._held.pop(tp, ())))
        self._room.set()


def _size(raw: Any) -> int:
    # Headers and Python's own part are about as much as a small value.
    size: int = max(0, raw.serialized_value_size) + max(0, raw.serialized_key_size)
    return size + 1_000
