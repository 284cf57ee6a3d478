"""Batches taken apart piece by piece yield what aiokafka's own way yields, whoever waits when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay_runtime import (
    bounded_decompression,
    bounded_polls,
    consumer,
    fetched_records,
    large_batches,
    lenient_records,
)

PLACE = TopicPartition("t", 0)
SMALL, PIECE, OPEN = 200, 60, 600


@pytest.fixture(autouse=True, scope="module")
def small_bounds() -> Iterator[None]:
    """So that a few hundred bytes are large and a thousand fill the room."""
    assert consumer.group_consumer is not None
    with (
        mock.patch.object(bounded_decompression, "SMALL_BYTES", SMALL),
        mock.patch.object(lenient_records, "SMALL_BYTES", SMALL),
        mock.patch.object(large_batches, "_PIECE_BYTES", PIECE),
        mock.patch.object(large_batches, "OPEN_BYTES", OPEN),
        mock.patch.object(large_batches, "_open", large_batches._Open()),
    ):
        yield


class Partition:
    """What aiokafka's fetcher holds of a partition."""

    active, paused, position = True, False, 0

    def __init__(self, raw: bytes) -> None:
        records = fetcher.PartitionRecords(
            PLACE, fetcher.MemoryRecords(raw), [], 0, fetched_records.as_records, None, True, 0
        )
        self.result: Any = fetcher.FetchResult(
            PLACE, assignment=self, partition_records=records, backoff=0
        )
        self.seen: list[Any] = []

    def state_value(self, tp: TopicPartition) -> Partition:
        return self

    def consumed_to(self, offset: int) -> None:
        assert offset >= self.position
        self.position = offset

    def poll(self, most: int, room: int) -> None:
        token = bounded_polls._room.set([room])
        try:
            if self.result.has_more():
                self.seen += self.result.getall(most)
        finally:
            bounded_polls._room.reset(token)


RECORDS = st.lists(
    st.tuples(st.sampled_from([None, 0, 3, 50, 120]), st.integers(0, 2)), min_size=1, max_size=12
)
LOGS = st.lists(st.tuples(st.sampled_from([0, 1, 2, 3, 4]), RECORDS), min_size=1, max_size=3)
POLLS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(1, 5), st.sampled_from([1, 100, 10_000]), st.booleans()
    ),
    max_size=40,
)


def log_of(batches: list[tuple[int, list[tuple[int | None, int]]]]) -> bytes:
    raw, base = b"", 0
    for codec, records in batches:
        builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1_000_000)
        for n, (size, headers) in enumerate(records):
            value = None if size is None else (b"%d " % (base + n) + b"v" * 120)[:size]
            builder.append(n, n, b"k", value, [("h", b"%d" % h) for h in range(headers)])
        made = bytearray(builder.build())
        made[0:8] = base.to_bytes(8, "big")
        raw += bytes(made)
        base += len(records)
    return raw


# Larger as it is fetched than what becomes of it.
HARDLY_COMPRESSED = (
    2,
    [(None, 0)] * 5 + [(None, 2), (None, 0), (None, 0), (None, 1), (None, 0), (3, 1), (50, 2)],
)


@settings(max_examples=200, deadline=None)
@example(logs=[[(0, [(None, 0)]), HARDLY_COMPRESSED]], polls=[])
@given(logs=st.lists(LOGS, min_size=1, max_size=4), polls=POLLS)
def test_every_record_once_and_in_order(logs: Any, polls: Any) -> None:
    """Of every partition, in polls of any size, with turns that end at any time; and it ends."""
    raws = [log_of(batches) for batches in logs]
    partitions = [Partition(raw) for raw in raws]

    def poll(partition: Partition, most: int, room: int, turn_over: bool) -> None:
        with mock.patch.object(large_batches, "_TURN_S", 0.0 if turn_over else 1e9):
            partition.poll(most, room)
        held = sum(batch.size for batch in large_batches._open.batches)
        assert held <= max(OPEN, *(batch.size for batch in large_batches._open.batches), 0)

    for which, most, room, turn_over in polls:
        poll(partitions[which % len(partitions)], most, room, turn_over)
    for _ in range(200):
        for partition in partitions:
            poll(partition, 3, 10_000, True)
    for raw, partition in zip(raws, partitions, strict=True):
        assert not partition.result.has_more()
        records, expected = MemoryRecords(raw), []
        with mock.patch.object(bounded_decompression, "SMALL_BYTES", 1_000_000):
            while (batch := records.next_batch()) is not None:
                expected += [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch]
        assert [
            (r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in partition.seen
        ] == expected
    assert not large_batches._open.batches
