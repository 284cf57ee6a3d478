"""Reads a batch that is large once it is decompressed, piece by piece, within a bound over all.

Who writes to a public topic decides how much a few kilobytes become, in each of its partitions. A
lane reads some records of every partition in turn, so that batches lie half-read side by side: an
event loop holds `OPEN_BYTES` of them. One that finds no room waits until others are read out or
have had their turn; those are decompressed again when they go on, from where they stood.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.util import encode_varint

from assay_runtime.bounded_decompression import MOST_BYTES, Decompressed
from assay_runtime.bounded_polls import NoRoom, charge, under_way

# One that is larger is read when it is alone.
OPEN_BYTES = MOST_BYTES
# To take 64 MB apart anew costs 30 to 100 ms, so turns of this length cost a tenth at most.
_TURN_S = 1.0
# What is read of a batch at a time, or one record that is larger.
_PIECE_BYTES = 65_536
# Of one record, names and values. Each of two bytes would become an object of a hundred.
_HEADERS_BYTES = 1_048_576

# Of a record batch, format 2 (KIP-98).
_HEADER_BYTES, _ATTRIBUTES_AT, _COUNT_AT = 61, 21, 57
_CODEC = 0x07

_Bytes = memoryview | mmap.mmap


class _Open(threading.local):
    """The batches of one event loop that are decompressed."""

    def __init__(self) -> None:
        self.batches: WeakSet[LargeBatch] = WeakSet()

    def make_room(self, size: int) -> None:
        """Close what has had its turn. Raises NoRoom where that is not enough; without a poll
        under way nobody could wait, so that everything is closed that is in the way."""
        held = sorted(self.batches, key=lambda batch: batch.opened_at)
        free = OPEN_BYTES - sum(batch.size for batch in held)
        since = time.monotonic() - (_TURN_S if under_way() else 0.0)
        over = []
        for batch in held:
            if free < size and batch.opened_at <= since:
                over.append(batch)
                free += batch.size
        if free < size and len(over) < len(held):
            raise NoRoom
        for batch in over:
            batch.close()


_open = _Open()


class LargeBatch:
    """`wire` is the batch as it was fetched; `found` what has just become of it, None where it is
    not compressed: then nothing of it is held here."""

    def __init__(self, wire: memoryview, found: Decompressed | None) -> None:
        self._wire = wire
        self._header = bytearray(wire[:_HEADER_BYTES])
        (attributes,) = struct.unpack_from(">h", self._header, _ATTRIBUTES_AT)
        struct.pack_into(">h", self._header, _ATTRIBUTES_AT, attributes & ~_CODEC)
        (self._left,) = struct.unpack_from(">i", self._header, _COUNT_AT)
        self._compressed = found is not None
        self._fresh = found.pages if found else None
        self._at = 0
        self._pages: mmap.mmap | None = None
        self.size = found.size if found else len(wire) - _HEADER_BYTES
        self.opened_at = 0.0

    def pieces(self) -> Iterator[bytes]:
        """What has not been read yet, as batches that are not compressed.

        Raises NoRoom, CorruptRecordException.
        """
        while self._left > 0:
            piece = self._next_piece()
            if not self._left:
                self.close()
            yield piece
        if self._at != self.size:
            raise CorruptRecordException(f"{self.size - self._at} bytes after the last record")

    def close(self) -> None:
        """Give the decompressed bytes up."""
        self._pages = None
        _open.batches.discard(self)

    def _bytes(self) -> _Bytes:
        if not self._compressed:
            return self._wire[_HEADER_BYTES:]
        if self._pages is None:
            fresh, self._fresh = self._fresh, None
            _open.make_room(self.size)
            self._pages = fresh or _decompressed(self._wire)
            self.opened_at = time.monotonic()
            _open.batches.add(self)
        return self._pages

    def _next_piece(self) -> bytes:
        found = self._bytes()
        start, end, count = self._at, self._at, 0
        while count < self._left and end - start < _PIECE_BYTES:
            length, body = _varint(found, end)
            if length < 0 or body + length > self.size:
                raise CorruptRecordException(f"a record of {length} bytes at {end} of {self.size}")
            if count and body + length - start > _PIECE_BYTES:
                break
            end, count = body + length, count + 1
        records: Any = memoryview(found)[start:end]
        if end - start > _HEADERS_BYTES:
            records = _bearable(records)
        charge(end - start)
        self._at, self._left = end, self._left - count
        struct.pack_into(">i", self._header, _COUNT_AT, count)
        return b"".join((self._header, records))


def _decompressed(wire: memoryview) -> mmap.mmap:
    try:
        iter(DefaultRecordBatch(wire))
    except Decompressed as found:
        return found.pages
    raise CorruptRecordException("a batch that was large is not any more")


def _bearable(record: memoryview) -> memoryview | bytes:
    """The record, or in its place one without key and value that says why."""
    _, start = _varint(record, 0)
    at = start
    for _ in ("attributes", "timestamp", "offset"):
        _, at = _varint(record, at)
    head = record[start:at]
    for _ in ("key", "value"):
        length, at = _varint(record, at)
        at += max(0, length)
    if len(record) - at <= _HEADERS_BYTES:
        return record
    reason = f"more than {_HEADERS_BYTES} bytes of headers".encode()
    made = bytearray(head)
    for length, data in ((-1, b""), (-1, b""), (1, b""), (16, b"assay.unreadable")):
        encode_varint(length, made.append)
        made += data
    encode_varint(len(reason), made.append)
    prefix = bytearray()
    encode_varint(len(made) + len(reason), prefix.append)
    return bytes(prefix + made + reason)


def _varint(found: _Bytes, at: int) -> tuple[int, int]:
    """A number in zigzag code and where it ends."""
    number = shift = 0
    while True:
        if at >= len(found) or shift > 63:
            raise CorruptRecordException(f"no number at {at}")
        byte = found[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
