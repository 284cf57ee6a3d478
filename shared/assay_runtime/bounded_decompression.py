"""Decompresses a record batch up to a bound, and not a byte further.

A broker limits a batch as it is stored, so thirteen kilobytes that become four hundred megabytes
pass it, and every consumer of the topic would hold them at once, again after each restart. Who
may write to a public topic must not be able to do that (SPEC X.5).
"""

from __future__ import annotations

import gzip
import io
import mmap
import sys
import threading
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
from aiokafka.record import default_records
from aiokafka.record.default_records import DefaultRecordBatch

# The largest record of the catalogue has 6 MB, and producers close a batch far below this.
MOST_BYTES = 67_108_864


class _Room(threading.local):
    """One per event loop, which takes batches apart one at a time. Pages that no batch has needed
    are none of the process's memory."""

    def __init__(self) -> None:
        self.pages = mmap.mmap(-1, MOST_BYTES)


_room = _Room()


class BatchUnreadable(Exception):
    """What was compressed is too large, or is no such thing; it is the same at each try."""


def install() -> None:
    """For every aiokafka consumer of this process. AttributeError where aiokafka decompresses
    elsewhere. Snappy makes at most twenty times of what it reads."""
    for home in {default_records, sys.modules[DefaultRecordBatch.__module__]}:
        for codec, decode in _DECODERS.items():
            if not hasattr(home, codec):
                raise AttributeError(f"{home.__name__} has no {codec}; see {__name__}")
            setattr(home, codec, decode)


def _into_room(decompress_into: Callable[[Any, Any], int]) -> Callable[[Any], bytes]:
    def decode(payload: Any) -> bytes:
        try:
            return _room.pages[: decompress_into(payload, _room.pages)]
        except cramjam.DecompressionError as error:
            _room.pages = mmap.mmap(-1, MOST_BYTES)  # all pages of the other are in use
            raise _unreadable(error) from error

    return decode


def _gzip_decode(payload: Any) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(payload)) as file:
            found = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(error) from error
    if len(found) > MOST_BYTES:
        raise _unreadable("there is more")
    return found


def _unreadable(reason: object) -> BatchUnreadable:
    return BatchUnreadable(f"not decompressed within {MOST_BYTES} bytes: {reason}")


_DECODERS: dict[str, Callable[[Any], bytes]] = {
    "zstd_decode": _into_room(cramjam.zstd.decompress_into),
    "lz4_decode": _into_room(cramjam.lz4.decompress_into),
    "gzip_decode": _gzip_decode,
}
