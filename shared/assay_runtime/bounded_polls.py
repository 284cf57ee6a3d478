"""Bounds a poll in bytes beside its number of records.

A fetch is bounded as it comes over the wire: five hundred wallets of 4 MB that compress a
thousandfold come in one, and would stand in memory at once. What is left over stays with the
consumer, compressed, for the next poll.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from aiokafka import TopicPartition
from aiokafka.consumer import consumer, fetcher

# Of values. Two hundred of the 40 KB that a wallet usually has.
POLL_BYTES = 8_388_608

# What the poll under way may still take; a record that passes the bound is its last.
_room: ContextVar[list[int]] = ContextVar("room")


class _FetchResult(fetcher.FetchResult):  # type: ignore[misc]
    _partition_records: Any

    def getall(self, max_records: int | None = None) -> list[Any]:
        if not self.check_assignment(self._topic_partition) or not self.has_more():
            return []
        room = _room.get()
        taken: list[Any] = []
        if room[0] <= 0:
            return taken
        left = room[0]
        for record in self._partition_records:
            taken.append(record)
            left -= len(record.value or b"")
            if left <= 0 or len(taken) == max_records:
                self._update_position()
                break
        else:
            self._update_position()
            self._partition_records = None
        room[0] = left
        return taken


class _Fetcher(fetcher.Fetcher):  # type: ignore[misc]
    async def fetched_records(
        self,
        partitions: Iterable[TopicPartition],
        wait_s: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[Any]]:
        token = _room.set([POLL_BYTES])
        try:
            found: dict[TopicPartition, list[Any]]
            found = await super().fetched_records(partitions, wait_s, max_records)
        finally:
            _room.reset(token)
        return found


def install() -> None:
    """For every consumer that is made from now on."""
    fetcher.FetchResult = _FetchResult
    consumer.Fetcher = _Fetcher
