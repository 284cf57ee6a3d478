"""A few kilobytes in every partition that become a great deal more stay within one bound."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder, _DefaultRecordBatchBuilderPy

from assay_runtime import bounded_polls, consumer, fetched_records, large_batches
from assay_runtime.bounded_decompression import MOST_BYTES, SMALL_BYTES
from assay_runtime.lenient_records import LenientRecords

PARTITIONS = 12
ZSTD = 4
Headers = list[tuple[str, bytes | None]]


class RawName(str):
    """A header name that is written as the bytes it stands for."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"\xff"


def batch(
    *values: bytes | None,
    codec: int = ZSTD,
    base: int = 0,
    headers: dict[int, Headers] | None = None,
) -> bytes:
    named = headers or {}
    kind = _DefaultRecordBatchBuilderPy if named else DefaultRecordBatchBuilder
    builder = kind(2, codec, 0, -1, -1, -1, 1_000_000_000)
    for n, value in enumerate(values):
        builder.append(n, n, b"k%d" % n, value, named.get(n, []))
    made = bytearray(builder.build())
    made[0:8] = base.to_bytes(8, "big")
    return bytes(made)


class Partition:
    """What aiokafka's fetcher holds of a partition, read by polls; of values, `kept` bytes stay."""

    active, paused, position = True, False, 0

    def __init__(self, raw: bytes, kept: int | None = None) -> None:
        assert consumer.group_consumer is not None, "its import installs what is tested"
        place = TopicPartition("t", 0)
        records = fetcher.PartitionRecords(
            place, fetcher.MemoryRecords(raw), [], 0, fetched_records.as_records, None, True, 0
        )
        self.result = fetcher.FetchResult(
            place, assignment=self, partition_records=records, backoff=0
        )
        self.seen: list[Any] = []
        self.kept = kept

    def state_value(self, tp: TopicPartition) -> Partition:
        return self

    def consumed_to(self, offset: int) -> None:
        self.position = offset

    def poll(self, most: int | None = None) -> int:
        """How many records it brought."""
        token = bounded_polls._room.set([bounded_polls.POLL_BYTES])
        try:
            found = self.result.getall(most) if self.result.has_more() else []
        finally:
            bounded_polls._room.reset(token)
        self.seen += [
            record._replace(value=record.value and record.value[: self.kept]) for record in found
        ]
        return len(found)


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(large_batches, "time", made)
    monkeypatch.setattr(large_batches, "_open", large_batches._Open())
    return made


def opened() -> int:
    return sum(found.size for found in large_batches._open.batches)


def test_half_read_batches_of_all_partitions_share_one_bound(clock: Clock) -> None:
    """A lane reads a few records of each in turn; each comes to its turn, in order, once."""
    values = [b"%02d" % n + bytes(200_000) for n in range(100)]
    raw = batch(*values)
    partitions = [Partition(raw, kept=2) for _ in range(PARTITIONS)]
    tracemalloc.start()
    try:
        for _ in range(3):
            for partition in partitions:
                partition.poll(4)
                assert opened() <= large_batches.OPEN_BYTES
        assert [len(partition.seen) for partition in partitions] == [12] * 3 + [0] * 9
        assert tracemalloc.get_traced_memory()[0] < 8_000_000
    finally:
        tracemalloc.stop()
    while any(partition.result.has_more() for partition in partitions):
        clock.now += 0.1
        for partition in partitions:
            partition.poll(4)
            assert opened() <= large_batches.OPEN_BYTES
    for partition in partitions:
        assert [record.value for record in partition.seen] == [b"%02d" % n for n in range(100)]
    assert opened() == 0


def test_one_that_waits_has_passed_nothing(clock: Clock) -> None:
    """It comes when the other is read out, though that is the largest there may be."""
    values = [bytes(MOST_BYTES // 4 - 100)] * 4
    first, second = (Partition(batch(*values)) for _ in range(2))
    assert (first.poll(1), second.poll(1)) == (1, 0)
    assert (second.position, second.result.has_more()) == (0, True)
    assert [first.poll(4) for _ in range(4)] == [1, 1, 1, 0]
    assert second.poll(1) == 1


def test_what_has_had_its_turn_gives_way_and_goes_on_later(clock: Clock) -> None:
    """Nobody may keep the others from being read by reading slowly, or not at all."""
    values = [b"%d" % n + bytes(MOST_BYTES // 8) for n in range(6)]
    first, second = (Partition(batch(*values)) for _ in range(2))
    taken = []
    for _ in range(14):
        taken.append((first.poll(1), second.poll(1)))
        clock.now += 0.4
    assert taken[:7] == [(1, 0)] * 3 + [(1, 1), (0, 1), (0, 1), (1, 0)]
    for partition in (first, second):
        assert [record.value[:1] for record in partition.seen] == [b"%d" % n for n in range(6)]


def test_a_batch_that_nobody_reads_any_more_gives_way(clock: Clock) -> None:
    """Its partition was revoked, or sought; what is left of it is not freed at once."""
    forgotten = Partition(batch(*[bytes(MOST_BYTES // 4 - 100)] * 4))
    forgotten.poll(1)
    generator = forgotten.result._partition_records
    del forgotten
    other = Partition(batch(*[bytes(MOST_BYTES // 4)] * 3))
    assert other.poll(1) == 0
    clock.now += large_batches._TURN_S
    assert other.poll(1) == 1
    assert opened() <= large_batches.OPEN_BYTES
    del generator


def test_small_batches_wait_for_none(clock: Clock) -> None:
    """Ordinary traffic beside what fills the room."""
    large = Partition(batch(*[bytes(MOST_BYTES // 4 - 100)] * 4))
    assert large.poll(1) == 1
    small = Partition(batch(b"a", b"b", b"c"))
    assert small.poll() == 3


def test_records_one_by_one_wait_for_none(clock: Clock) -> None:
    """Consumers of the same process that ask for single records cannot be told to wait."""
    raw = batch(*[b"%d" % n + bytes(MOST_BYTES // 3 - 100) for n in range(3)])
    first, second = Partition(raw), Partition(raw)
    for n in range(3):
        for partition in (first, second):
            assert partition.result.getone().value[:1] == b"%d" % n
            assert opened() <= large_batches.OPEN_BYTES


def test_batches_before_and_behind_one_that_waits(clock: Clock) -> None:
    """A poll brings what comes before it, and the next goes on with it."""
    size = MOST_BYTES // 2
    full = Partition(batch(bytes(size), bytes(size // 2)))
    large = batch(bytes(size), b"4", base=3)
    fetch = batch(b"0", b"1", b"2") + large + batch(b"5", base=5)
    mixed = Partition(fetch)
    full.poll(1)
    assert (mixed.poll(), mixed.position) == (3, 3)
    assert (mixed.poll(), mixed.position) == (0, 3)
    while full.poll():
        pass
    assert mixed.poll() == 1  # and the poll is full
    assert mixed.poll() == 2
    assert [record.offset for record in mixed.seen] == list(range(6))


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4], ids=["plain", "gzip", "snappy", "lz4", "zstd"])
def test_a_large_batch_reads_as_a_small_one(codec: int) -> None:
    """Whatever the codec; header names that are no UTF-8 are replaced in it as well."""
    values = [b"%d" % n * 300 for n in range(3_000)]
    headers: dict[int, Headers] = {2_000: [("a", b"1"), (RawName("x"), None)]}
    for chosen in ({}, headers):
        partition = Partition(batch(*values, codec=codec, headers=chosen))
        while partition.poll(700):
            pass
        assert sum(map(len, values)) > SMALL_BYTES
        assert [record.value for record in partition.seen] == values
        assert [record.offset for record in partition.seen] == list(range(3_000))
        assert [record.timestamp_ms for record in partition.seen] == list(range(3_000))
        named = (("a", b"1"), ("\ufffd", None)) if chosen else ()
        assert partition.seen[2_000].headers == named


def test_headers_beyond_all_bounds_are_one_record_that_says_so() -> None:
    """Each of two bytes would become an object; the value of a record may be as large as ever."""
    bomb: Headers = [("", None)] * (large_batches._HEADERS_BYTES // 2 + 1)
    most: Headers = [("n", bytes(1_000_000))]
    raw = batch(b"a", b"b", b"c" * 2_000_000, b"d", headers={1: bomb, 2: most})
    partition = Partition(raw)
    while partition.poll():
        pass
    first, unreadable, large, last = partition.seen
    assert (first.value, large.value, last.value) == (b"a", b"c" * 2_000_000, b"d")
    assert large.headers == tuple(most)
    assert (unreadable.offset, unreadable.timestamp_ms) == (1, 1)
    assert (unreadable.key, unreadable.value) == (None, None)
    ((name, reason),) = unreadable.headers
    assert name == "assay.unreadable"
    assert b"headers" in reason


@pytest.mark.parametrize("count", [-1, 0, 2_999, 3_001])
def test_a_large_batch_that_counts_its_records_wrong_is_refused(count: int) -> None:
    raw = bytearray(batch(*[bytes(1_000)] * 3_000))
    struct.pack_into(">i", raw, 57, count)
    records = LenientRecords(bytes(raw))
    with pytest.raises(CorruptRecordException):
        list(records.next_batch() or ())


@pytest.mark.parametrize("codec", [0, ZSTD], ids=["plain", "zstd"])
def test_a_poll_counts_keys_and_headers(codec: int) -> None:
    """They compress as values do, and stand in memory as long."""
    headers: Headers = [("n", bytes(100_000))]
    fetch = b"".join(batch(b"", codec=codec, base=n, headers={0: headers}) for n in range(200))
    partition = Partition(fetch)
    assert partition.poll() * 100_000 < bounded_polls.POLL_BYTES + 200_000
    while partition.poll():
        pass
    assert [record.offset for record in partition.seen] == list(range(200))


@pytest.mark.parametrize("count", [50_000, 500_000], ids=["small", "large"])
def test_no_more_records_are_made_than_are_asked_for(count: int) -> None:
    """Those that hold nothing are twenty times their size in memory."""
    partition = Partition(batch(*[None] * count))
    tracemalloc.start()
    try:
        partition.poll(4)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_a_batch_is_given_up_with_its_last_piece() -> None:
    """One record may be all of it, and stands in memory itself then."""
    partition = Partition(batch(bytes(2_000_000)))
    assert partition.poll(1) == 1
    assert opened() == 0
