"""Reads what aiokafka refuses: a header name that is no UTF-8, a batch that cannot be decompressed.

aiokafka decodes header names strictly, so one such record, which any client can write, would stop
every consumer of its partition for good. A batch that fails for this reason is read a second time
by aiokafka's own Python parser with undecodable bytes replaced. Of a batch that cannot be
decompressed, or only beyond all bounds, one record without key and value is read, at its last
offset, with the reason in the header `assay.unreadable`; so is a record whose headers alone are
beyond them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import (
    DefaultRecordBatch,
    _DefaultRecordBatchPy,
    _DefaultRecordPy,
)
from aiokafka.record.memory_records import MemoryRecords

from assay_runtime.bounded_decompression import SMALL_BYTES, BatchUnreadable, Decompressed
from assay_runtime.bounded_polls import charge
from assay_runtime.large_batches import LargeBatch

# Of a batch in any format.
_LENGTH_AT, _MAGIC_AT = 8, 16
_LENGTH = struct.Struct(">i")


class _LenientBytes(bytearray):
    """A buffer whose slices decode with U+FFFD in place of what is no UTF-8."""

    def __getitem__(self, item: Any) -> Any:
        found = super().__getitem__(item)
        return _LenientBytes(found) if isinstance(item, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return super().decode(encoding, "replace")


class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        batch: Any = self
        batch._buffer = _LenientBytes(batch._buffer)


class _Batch:
    """aiokafka's batch, except for how its records are iterated: one at a time, so that no more
    of them is in memory than is asked for."""

    def __init__(self, strict: Any, wire: memoryview) -> None:
        self._strict = strict
        self._wire = wire
        self._large: LargeBatch | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strict, name)

    def __next__(self) -> Any:
        return next(self._strict)

    def __iter__(self) -> Iterator[Any]:
        if self._large is None:
            try:
                iter(self._strict)  # decompresses
            except BatchUnreadable as reason:
                return iter([self._unreadable(str(reason))])
            except Decompressed as found:
                self._large = LargeBatch(self._wire, found)
            else:
                size = len(self._wire)
                old = self._wire[_MAGIC_AT] < 2
                if size <= SMALL_BYTES or old or self._strict.compression_type:
                    charge(size)
                    return _records(self._strict, self._wire)
                self._large = LargeBatch(self._wire, None)
        return self._pieces(self._large)

    def validate_crc(self) -> bool:
        return self._large is not None or bool(self._strict.validate_crc())

    def _pieces(self, large: LargeBatch) -> Iterator[Any]:
        for piece in large.pieces():
            yield from _records(DefaultRecordBatch(piece), piece)

    def _unreadable(self, reason: str) -> Any:
        strict = self._strict
        offset = strict.base_offset + strict.last_offset_delta
        headers = [("assay.unreadable", reason.encode())]
        return _DefaultRecordPy(
            offset, strict.max_timestamp, strict.timestamp_type, None, None, headers
        )


def _records(strict: Any, wire: bytes | memoryview) -> Iterator[Any]:
    record: Any = None
    try:
        for record in strict:
            yield record
    except UnicodeDecodeError:
        for other in _LenientBatch(wire):
            if record is None or other.offset > record.offset:
                yield other


class LenientRecords:
    """In place of aiokafka's MemoryRecords: the batches of one fetched partition."""

    def __init__(self, raw: bytes) -> None:
        self._raw = memoryview(raw)
        self._strict = MemoryRecords(raw)
        self._at = 0
        self._last: _Batch | None = None
        self._waiting: _Batch | None = None

    def size_in_bytes(self) -> int:
        return int(self._strict.size_in_bytes())

    def has_next(self) -> bool:
        return self._waiting is not None or bool(self._strict.has_next())

    def next_batch(self) -> _Batch | None:
        if self._waiting is not None:
            self._last, self._waiting = self._waiting, None
            return self._last
        strict = self._strict.next_batch()
        if strict is None:
            return None
        start = self._at
        (length,) = _LENGTH.unpack_from(self._raw, start + _LENGTH_AT)
        self._at = start + _LENGTH_AT + _LENGTH.size + length
        self._last = _Batch(strict, self._raw[start : self._at])
        return self._last

    def again(self) -> None:
        """The batch that was given last comes next, from where it stands."""
        self._waiting = self._last


def install() -> None:
    """For every aiokafka consumer of this process."""
    fetcher.MemoryRecords = LenientRecords
