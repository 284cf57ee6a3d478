"""What producers compress is what consumers read, at the level that costs least."""

from __future__ import annotations

import sys

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from assay_runtime import compression

_ZSTD = 4
_HEADER_BYTES = 61


def built(attributes: int) -> bytes:
    batch = DefaultRecordBatchBuilder(
        2, attributes, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=0,
        batch_size=1_000_000,
    )  # fmt: skip
    for number in range(200):
        batch.append(number, 1, b"key-%d" % number, b'{"score": %d, "wallet": "0x"}' % number, [])
    return bytes(batch.build())


def test_batches_are_compressed_at_level_1_and_read_back() -> None:
    """aiokafka has no setting for it; another aiokafka must not fall back unseen."""
    compression.install()
    plain, packed = built(0), built(_ZSTD)
    records = plain[_HEADER_BYTES:]
    assert packed[_HEADER_BYTES:] == bytes(cramjam.zstd.compress(records, level=1))
    assert packed[_HEADER_BYTES:] != bytes(cramjam.zstd.compress(records, level=3))
    read = [(r.offset, r.key, r.value) for r in MemoryRecords(packed).next_batch() or ()]
    assert read == [(r.offset, r.key, r.value) for r in MemoryRecords(plain).next_batch() or ()]
    assert len(read) == 200


def test_another_aiokafka_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that compresses elsewhere would go on at its own level without a word."""
    home = sys.modules[DefaultRecordBatchBuilder.__module__]
    monkeypatch.delattr(home, "zstd_encode")
    with pytest.raises(AttributeError, match="compresses in another way"):
        compression.install()
