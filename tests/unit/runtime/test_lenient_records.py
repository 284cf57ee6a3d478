"""One record must not stop its partition: header names that are no UTF-8."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.record.memory_records import MemoryRecords

from assay_runtime import consumer
from assay_runtime.lenient_records import LenientRecords


class RawName(str):
    """A header name that is written as the bytes it stands for."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"\xff\xfe"


def batch(base: int, compression: int, *names: str) -> bytes:
    builder = _DefaultRecordBatchBuilderPy(2, compression, 0, -1, -1, -1, 1_000_000)
    for n, name in enumerate(names):
        builder.append(n, n, b"k%d" % n, b"v%d" % (base + n), [(name, b"\xff"), ("none", None)])
    made = bytearray(builder.build())
    made[0:8] = base.to_bytes(8, "big")
    return bytes(made)


def read(records: Any) -> list[Any]:
    found = []
    while records.has_next():
        made = records.next_batch()
        assert made.validate_crc()
        found += [(r.offset, r.key, r.value, tuple(r.headers)) for r in made]
    return found


@pytest.mark.parametrize("compression", [0, 1, 4])
def test_a_bad_header_name_is_replaced_and_the_rest_is_untouched(compression: int) -> None:
    """Values, offsets and other headers are what they were; batches around it too."""
    bad = RawName("x")
    raw = (
        batch(0, compression, "a", "b")
        + batch(2, compression, "a", bad, "c")
        + batch(5, compression, "d")
    )
    with pytest.raises(UnicodeDecodeError):
        read(MemoryRecords(raw))
    found = read(LenientRecords(raw))
    assert [row[:1] + row[2:3] for row in found] == [(n, b"v%d" % n) for n in range(6)]
    assert [row[3][0] for row in found] == [
        ("a", b"\xff"), ("b", b"\xff"), ("a", b"\xff"), ("\ufffd\ufffd", b"\xff"),
        ("c", b"\xff"), ("d", b"\xff"),
    ]  # fmt: skip
    assert all(row[3][1] == ("none", None) for row in found)


def test_good_batches_read_as_by_aiokafka() -> None:
    raw = batch(0, 4, "a", "b") + batch(2, 0, "c")
    assert read(LenientRecords(raw)) == read(MemoryRecords(raw))
    assert LenientRecords(raw).size_in_bytes() == len(raw)


def test_our_consumers_use_it() -> None:
    """The name in aiokafka's fetcher is private; an upgrade that moves it must be noticed."""
    from aiokafka.consumer import fetcher

    assert consumer.group_consumer is not None
    assert fetcher.MemoryRecords is LenientRecords
