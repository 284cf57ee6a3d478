"""Our way to read a fetched batch yields what aiokafka's own way yields (research §4, S1)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_runtime import consumer, fetched_records
from assay_runtime.lenient_records import LenientRecords
from assay_runtime.records import Record

OURS: Any = fetched_records._PartitionRecords
THEIRS: Any = OURS.__bases__[0]
# aiokafka's own, whatever of ours stands in its place.
FETCH_RESULT: Any = next(
    kind for kind in fetcher.FetchResult.__mro__ if kind.__module__ == fetcher.__name__
)
PLACE = TopicPartition("t", 3)
# Of a record batch, format 2 (KIP-98): the checksum covers everything from the attributes on.
_CHECKSUM_AT, _ATTRIBUTES_AT, _LAST_DELTA_AT = 17, 21, 23
_CODECS = [0, 1, 2, 3, 4]
_APPEND_TIME, _CONTROL = 0x08, 0x20
_ABORT, _COMMIT = struct.pack(">hh", 0, 0), struct.pack(">hh", 0, 1)


@dataclass(frozen=True)
class Batch:
    """Records as (gap before it, timestamp in ms, key, value, headers); `marker` makes it a
    control batch; `beyond` offsets at its end were compacted away."""

    records: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]
    gap: int = 0
    beyond: int = 0
    codec: int = 0
    append_time: bool = False
    producer: int = -1
    marker: bytes | None = None
    damaged: bool = False

    def at(self, base: int) -> tuple[bytes, int]:
        """Its bytes, and the offset behind it."""
        codec = self.codec if self.marker is None else 0  # as the broker makes them
        builder = DefaultRecordBatchBuilder(
            2, codec, is_transactional=int(self.producer >= 0), producer_id=self.producer,
            producer_epoch=0, base_sequence=0, batch_size=1_000_000,
        )  # fmt: skip
        delta = -1
        for gap, timestamp, key, value, headers in self.records:
            delta += 1 + gap
            if self.marker is not None:
                key, value = self.marker, b"\0" * 6
            builder.append(delta, timestamp, key, value, headers)
        raw = bytearray(builder.build())
        attributes = int.from_bytes(raw[_ATTRIBUTES_AT : _ATTRIBUTES_AT + 2], "big")
        attributes |= _APPEND_TIME * self.append_time | _CONTROL * (self.marker is not None)
        struct.pack_into(">q", raw, 0, base)
        struct.pack_into(">h", raw, _ATTRIBUTES_AT, attributes)
        struct.pack_into(">i", raw, _LAST_DELTA_AT, delta + self.beyond)
        checksum = calc_crc32c(bytes(raw[_ATTRIBUTES_AT:]))
        struct.pack_into(">I", raw, _CHECKSUM_AT, checksum ^ self.damaged)
        return bytes(raw), base + delta + self.beyond + 1


def log_of(batches: list[Batch], start: int) -> bytes:
    raw, offset = b"", start
    for batch in batches:
        data, offset = batch.at(offset + batch.gap)
        raw += data
    return raw


def reader(
    kind: Any, raw: bytes, at: int, aborted: Any = (), isolation: int = 0, key: Any = None
) -> Any:
    return kind(
        PLACE, LenientRecords(raw), list(aborted), at,
        fetched_records.as_records if key is None else key, None, True, isolation,
    )  # fmt: skip


def seen(kind: Any, raw: bytes, at: int, aborted: Any, isolation: int) -> list[Any]:
    """Each record with the position after it, then the last position, and the error if any."""
    records = reader(kind, raw, at, aborted, isolation)
    found: list[Any] = []
    try:
        for record in records:
            found.append((Record.of(record), records.next_fetch_offset))  # noqa: PERF401 - an error keeps them
    except CorruptRecordException as error:
        found.append(str(error))
    return [*found, records.next_fetch_offset]


BYTES = st.none() | st.binary(max_size=12)
RECORDS = st.tuples(
    st.sampled_from([0, 0, 0, 1, 7]),
    st.integers(0, 2**41),
    BYTES,
    BYTES,
    st.lists(st.tuples(st.text(max_size=4), BYTES), max_size=3),
)
BATCHES = st.builds(
    Batch,
    records=st.lists(RECORDS, min_size=1, max_size=5),
    gap=st.sampled_from([0, 0, 2]),
    beyond=st.sampled_from([0, 0, 3]),
    codec=st.sampled_from(_CODECS),
    append_time=st.booleans(),
    producer=st.sampled_from([-1, 5, 6]),
    marker=st.sampled_from([None, None, None, _ABORT, _COMMIT]),
    damaged=st.sampled_from([False] * 9 + [True]),
)


@settings(max_examples=300, deadline=None)
@given(
    batches=st.lists(BATCHES, max_size=5),
    start=st.sampled_from([0, 40, 2**40]),
    ahead=st.integers(0, 12),
    aborted=st.lists(st.tuples(st.sampled_from([5, 6]), st.integers(0, 60)), max_size=3),
    isolation=st.sampled_from([0, 1]),
)
def test_the_same_records_positions_and_errors(
    batches: list[Batch], start: int, ahead: int, aborted: list[tuple[int, int]], isolation: int
) -> None:
    """S1: null keys, values and headers' values, every codec, gaps in and between batches, a
    fetch that begins inside a batch, control batches, aborted transactions, a wrong checksum."""
    raw = log_of(batches, start)
    got = seen(OURS, raw, start + ahead, aborted, isolation)
    assert got == seen(THEIRS, raw, start + ahead, aborted, isolation)


@settings(max_examples=100, deadline=None)
@given(
    batches=st.lists(BATCHES, max_size=5), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=9)
)
def test_the_same_in_pieces(batches: list[Batch], sizes: list[int]) -> None:
    """A poll takes some of a fetch and the next one goes on behind it, also after an error."""
    raw = log_of(batches, 0)
    assert in_pieces(OURS, raw, sizes) == in_pieces(THEIRS, raw, sizes)


def in_pieces(kind: Any, raw: bytes, sizes: list[int]) -> list[Any]:
    assignment = Assignment()
    result = FETCH_RESULT(
        PLACE, assignment=assignment, partition_records=reader(kind, raw, 0), backoff=0
    )
    found: list[Any] = []
    for size in sizes:
        if not result.has_more():
            break  # as the fetcher does
        try:
            found.append([Record.of(record) for record in result.getall(size)])
        except CorruptRecordException as error:
            found.append(str(error))
        found.append((assignment.position, result.has_more()))
    return found


class Assignment:
    """The partition's state, as a fetch result uses it."""

    active, paused, position = True, False, 0

    def state_value(self, tp: TopicPartition) -> Assignment:
        return self

    def consumed_to(self, offset: int) -> None:
        self.position = offset


ONE = Batch([(0, 7, b"k", b"v", [("ce_id", b"1"), ("empty", None)])])


def test_records_are_ours() -> None:
    """Made at once, with every field; the broker's timestamp, not the batch's."""
    (record,) = reader(OURS, log_of([ONE], 40), 40)
    assert type(record) is Record
    assert record == Record("t", 3, 40, 7, b"k", b"v", (("ce_id", b"1"), ("empty", None)))


def test_other_consumers_get_aiokafkas_records() -> None:
    """Those of the process that do not ask for ours, with their own deserializers."""
    (record,) = reader(OURS, log_of([ONE], 40), 40, key=bytes.decode)
    assert type(record) is ConsumerRecord
    assert (record.key, record.value, record.serialized_key_size) == ("k", b"v", 1)


def test_a_wrong_checksum_is_refused() -> None:
    """Nothing of the batch comes out, and the position stays before it."""
    damaged = Batch(ONE.records, damaged=True)
    records = reader(OURS, log_of([ONE, damaged], 0), 0)
    found = iter(records)
    assert next(found).offset == 0
    with pytest.raises(CorruptRecordException):
        next(found)
    assert records.next_fetch_offset == 1


def test_the_chassis_consumer_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed by the import, for every consumer of a group."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(consumer, "AIOKafkaConsumer", lambda **options: asked.update(options))
    from assay_runtime.settings import KafkaSection

    consumer.group_consumer(KafkaSection(), "g", "c")
    assert asked["key_deserializer"] is fetched_records.as_records
    assert fetcher.PartitionRecords is OURS
