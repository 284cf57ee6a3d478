"""Decompresses a record batch up to a bound, and not a byte further.

A broker limits a batch as it is stored, so thirteen kilobytes that become four hundred megabytes
pass it, and every consumer of the topic would hold them at once, again after each restart. Who
may write to a public topic must not be able to do that (SPEC X.5).
"""

from __future__ import annotations

import gzip
import io
import mmap
import struct
import sys
import threading
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
from aiokafka.record import default_records
from aiokafka.record.default_records import DefaultRecordBatch

from assay_runtime.bounded_polls import charge

# The largest record of the catalogue has 6 MB, and producers close a batch far below this.
MOST_BYTES = 67_108_864
# What is no larger is decompressed into bytes of its own, and stays until it is read out.
SMALL_BYTES = 1_048_576

_XERIAL = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"


class _Room(threading.local):
    """One per event loop, which takes batches apart one at a time. Pages that no batch has needed
    are none of the process's memory."""

    def __init__(self) -> None:
        self.pages = mmap.mmap(-1, MOST_BYTES)


_room = _Room()


class BatchUnreadable(Exception):
    """What was compressed is too large, or is no such thing; it is the same at each try."""


class Decompressed(Exception):
    """What was compressed is more than SMALL_BYTES: it is the first `size` bytes of `pages`."""

    def __init__(self, pages: mmap.mmap, size: int) -> None:
        self.pages = pages
        self.size = size


def install() -> None:
    """For every aiokafka consumer of this process. AttributeError where aiokafka decompresses
    elsewhere."""
    for home in {default_records, sys.modules[DefaultRecordBatch.__module__]}:
        for codec, decode in _DECODERS.items():
            if not hasattr(home, codec):
                raise AttributeError(f"{home.__name__} has no {codec}; see {__name__}")
            setattr(home, codec, decode)


def _within(decompress_into: Callable[[Any, Any], int]) -> Callable[[Any], bytes]:
    def decode(payload: Any) -> bytes:
        try:
            size = decompress_into(payload, _room.pages)
        except _NO_SUCH_THING as error:
            _room.pages = mmap.mmap(-1, MOST_BYTES)  # all pages of the other are in use
            raise BatchUnreadable(f"not decompressed within {MOST_BYTES} bytes: {error}") from error
        if size > SMALL_BYTES:
            pages, _room.pages = _room.pages, mmap.mmap(-1, MOST_BYTES)
            raise Decompressed(pages, size)
        charge(size)
        return _room.pages[:size]

    return decode


def _gzip_into(payload: Any, pages: mmap.mmap) -> int:
    size = 0
    with gzip.GzipFile(fileobj=io.BytesIO(payload)) as file:
        while found := file.read(SMALL_BYTES):
            if size + len(found) > MOST_BYTES:
                raise EOFError("there is more")
            pages[size : size + len(found)] = found
            size += len(found)
    return size


def _snappy_into(payload: bytes, pages: mmap.mmap) -> int:
    """One block, or the blocks of xerial's format, which Java's clients write."""
    if not payload.startswith(_XERIAL):
        return int(cramjam.snappy.decompress_raw_into(payload, pages))
    at, size, room = len(_XERIAL), 0, memoryview(pages)
    while at < len(payload):
        (length,) = struct.unpack_from(">I", payload, at)
        at += 4 + length
        block = payload[at - length : at]
        size += int(cramjam.snappy.decompress_raw_into(block, room[size:]))
    return size


_NO_SUCH_THING = (cramjam.DecompressionError, OSError, EOFError, zlib.error, struct.error)

_DECODERS: dict[str, Callable[[Any], bytes]] = {
    "zstd_decode": _within(cramjam.zstd.decompress_into),
    "lz4_decode": _within(cramjam.lz4.decompress_into),
    "snappy_decode": _within(_snappy_into),
    "gzip_decode": _within(_gzip_into),
}
