"""Reads what aiokafka refuses: a header name that is no UTF-8, a batch that cannot be decompressed.

aiokafka decodes header names strictly, so one such record, which any client can write, would stop
every consumer of its partition for good. A batch that fails for this reason is read a second time
by aiokafka's own Python parser with undecodable bytes replaced. Of a batch that cannot be
decompressed, or only beyond all bounds, one record without key and value is read, at its last
offset, with the reason in the header `assay.unreadable`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy, _DefaultRecordPy
from aiokafka.record.memory_records import MemoryRecords, _MemoryRecordsPy

from assay_runtime.bounded_decompression import BatchUnreadable


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
    """aiokafka's batch, except for how its records are iterated."""

    def __init__(self, strict: Any, raw: bytes, index: int) -> None:
        self._strict = strict
        self._raw = raw
        self._index = index

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strict, name)

    def __next__(self) -> Any:
        return next(self._strict)

    def __iter__(self) -> Iterator[Any]:
        try:
            return iter(list(self._strict))
        except UnicodeDecodeError:
            return iter(_LenientBatch(self._slice()))
        except BatchUnreadable as reason:
            return iter([self._unreadable(str(reason))])

    def _unreadable(self, reason: str) -> Any:
        strict = self._strict
        offset = strict.base_offset + strict.last_offset_delta
        headers = [("assay.unreadable", reason.encode())]
        return _DefaultRecordPy(
            offset, strict.max_timestamp, strict.timestamp_type, None, None, headers
        )

    def _slice(self) -> bytearray:
        records = _MemoryRecordsPy(self._raw)
        for _ in range(self._index):
            records._cache_next()
        return bytearray(records._next_slice)


class LenientRecords:
    """In place of aiokafka's MemoryRecords: the batches of one fetched partition."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._strict = MemoryRecords(raw)
        self._index = -1

    def size_in_bytes(self) -> int:
        return int(self._strict.size_in_bytes())

    def has_next(self) -> bool:
        return bool(self._strict.has_next())

    def next_batch(self) -> _Batch | None:
        batch = self._strict.next_batch()
        self._index += 1
        return None if batch is None else _Batch(batch, self._raw, self._index)


def install() -> None:
    """For every aiokafka consumer of this process."""
    fetcher.MemoryRecords = LenientRecords
