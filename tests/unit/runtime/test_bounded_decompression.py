"""A small batch that becomes a large one costs its reader nothing (SPEC X.4, X.5)."""

from __future__ import annotations

import gzip
import resource
import sys
from typing import Any

import cramjam
import pytest
from aiokafka.codec import snappy_encode
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from assay_runtime import consumer
from assay_runtime.bounded_decompression import MOST_BYTES, BatchUnreadable
from assay_runtime.lenient_records import LenientRecords

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BOMB = bytes(4 * MOST_BYTES)


def batch(base: int, codec: int, *values: bytes) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1_000_000_000)
    for n, value in enumerate(values):
        builder.append(n, n, b"k", value, [])
    made = bytearray(builder.build())
    made[0:8] = base.to_bytes(8, "big")
    return bytes(made)


def read(raw: bytes) -> list[Any]:
    assert consumer.group_consumer is not None, "its import installs what is tested"
    found: list[Any] = []
    records = LenientRecords(raw)
    while (made := records.next_batch()) is not None:
        assert made.validate_crc()
        found += [(r.offset, r.key, r.value, tuple(r.headers)) for r in made]
    return found


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_what_is_within_the_bound_is_read_as_ever(codec: int) -> None:
    values = [b"%d" % n * 1_000 for n in range(300)]
    assert [row[2] for row in read(batch(0, codec, *values))] == values


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_bomb_is_one_record_that_says_so(codec: int) -> None:
    """At the batch's last offset, so that nothing of it seems unread; the rest is untouched."""
    raw = batch(0, codec, b"a") + batch(1, codec, b"b", BOMB) + batch(3, codec, b"c")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first, unread, last = read(raw)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert (first[:3], last[:3]) == ((0, b"k", b"a"), (3, b"k", b"c"))
    assert unread[:3] == (2, None, None)
    assert unread[3][0][0] == "assay.unreadable"
    assert str(MOST_BYTES).encode() in unread[3][0][1]
    assert grown < 3 * MOST_BYTES


def test_what_is_no_compressed_data_is_said_too() -> None:
    decoders = sys.modules[DefaultRecordBatch.__module__]
    for name in ("zstd_decode", "lz4_decode", "gzip_decode", "snappy_decode"):
        with pytest.raises(BatchUnreadable):
            getattr(decoders, name)(b"no such thing")


@pytest.mark.parametrize("damage", [b"\0\0\0", b"\xff\xff\xff\xfc", b"\0\0\0\x04abcd", b"\0\0\1\0"])
def test_blocks_of_snappy_that_are_none(damage: bytes) -> None:
    """Cut off, of a length below none, of other bytes, longer than what there is."""
    decoders: Any = sys.modules[DefaultRecordBatch.__module__]
    whole = snappy_encode(b"a" * 100_000, xerial_blocksize=1_000)
    assert decoders.snappy_decode(whole) == b"a" * 100_000
    with pytest.raises(BatchUnreadable):
        decoders.snappy_decode(whole + damage)
    raw = bytes(cramjam.snappy.compress_raw(b"one block"))
    assert decoders.snappy_decode(raw) == b"one block"


def test_gzip_of_two_members() -> None:
    """As gzip itself reads it; zstd of two frames likewise."""
    decoders: Any = sys.modules[DefaultRecordBatch.__module__]
    assert decoders.gzip_decode(gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"
    frames = bytes(cramjam.zstd.compress(b"a")) + bytes(cramjam.zstd.compress(b"b"))
    assert decoders.zstd_decode(frames) == b"ab"
