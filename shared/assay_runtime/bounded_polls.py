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

# Of records as they stand in their batches, with keys and headers. Two hundred of the 40 KB that
# a wallet usually has.
POLL_BYTES = 8_388_608

# What the poll under way may still take apart; the record that passes the bound is its last.
_room: ContextVar[list[int] | None] = ContextVar("room", default=None)


class NoRoom(Exception):
    """The batch waits for others that lie open; the next poll asks for it again."""


def charge(size: int) -> None:
    """So many bytes are taken apart for the poll under way. What one poll leaves of them is free
    for the next, so that a record costs no counting."""
    room = _room.get()
    if room is not None:
        room[0] -= size


def under_way() -> bool:
    """Whether a poll asks, which can do without a batch that must wait."""
    return _room.get() is not None


class _FetchResult(fetcher.FetchResult):  # type: ignore[misc]
    _partition_records: Any

    def getall(self, max_records: int | None = None) -> list[Any]:
        if not self.check_assignment(self._topic_partition) or not self.has_more():
            return []
        room = _room.get() or [POLL_BYTES]
        taken: list[Any] = []
        if room[0] <= 0:
            return taken
        read_out = False
        try:
            for record in self._partition_records:
                taken.append(record)
                if len(taken) == max_records or room[0] <= 0:
                    break
            else:
                read_out = True
        except NoRoom:
            self._partition_records.again()
        self._update_position()
        if read_out:
            self._partition_records = None
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
