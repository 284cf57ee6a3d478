"""Finished offsets above a committed one, as text for the commit's metadata.

A crash repeats what stands at or above the committed offset. With out-of-order completion most of
that may be finished, and each repeat of it would be a model call paid twice (research §3). So a
commit says which offsets are *not* finished: `committed ≤ o < end` and `o` not among them means
finished. There are never more of these than records in flight, however far the watermark is
behind, which keeps the text small.

Text: `1:TAG:BASE:DATA`. TAG names the topics' incarnation (`ASSAY_KAFKA__LOG`), BASE repeats the
committed offset, DATA is base64 of LEB128 numbers: `end - base`, then for each unfinished offset
its distance from one past the one before (from `base` for the first). Whatever does not fit, does
not match or cannot be read counts as unfinished: records are repeated, never skipped.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

# The broker's `offset.metadata.max.bytes`; Apache Kafka refuses a commit with more.
METADATA_BYTES = 4_096
_VERSION = "1"
_LONGEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class Finished:
    """Offsets from `base` up to, not including, `end` are finished except `unfinished`."""

    base: int
    end: int
    unfinished: frozenset[int]

    def __contains__(self, offset: int) -> bool:
        return self.base <= offset < self.end and offset not in self.unfinished

    def count(self, below: int | None = None) -> int:
        """How many offsets are finished, of all or of those below an offset."""
        end = self.end if below is None else min(below, self.end)
        return max(0, end - self.base) - sum(offset < end for offset in self.unfinished)


def to_metadata(
    base: int, end: int, unfinished: Iterable[int], log: str, limit: int = METADATA_BYTES
) -> str:
    """Text for a commit at `base`; `unfinished` ascending, all within `base` and `end`.

    Empty where there is nothing to say, or no room to say it.
    """
    head = f"{_VERSION}:{_tag(log)}:{base}:"
    room = max(0, limit - len(head)) // 4 * 3 - _LONGEST_NUMBER
    if end <= base or room < 0:
        return ""
    gaps = bytearray()
    expected = base
    for offset in unfinished:
        if len(gaps) + _LONGEST_NUMBER > room:
            end = offset
            break
        _put(gaps, offset - expected)
        expected = offset + 1
    data = bytearray()
    _put(data, end - base)
    return head + base64.b64encode(bytes(data + gaps)).decode("ascii")


def from_metadata(text: str, committed: int, log: str) -> Finished | None:
    """What `to_metadata` wrote for this very offset and incarnation, None for anything else."""
    head = f"{_VERSION}:{_tag(log)}:{committed}:"
    if not text.startswith(head):
        return None
    try:
        numbers = _numbers(base64.b64decode(text[len(head) :], validate=True))
    except (binascii.Error, ValueError):
        return None
    if not numbers:
        return None
    end = committed + numbers[0]
    unfinished = set()
    expected = committed
    for gap in numbers[1:]:
        unfinished.add(expected + gap)
        expected += gap + 1
    if expected > end:
        return None
    return Finished(committed, end, frozenset(unfinished))


def _tag(log: str) -> str:
    return hashlib.sha256(log.encode()).hexdigest()[:8]


def _put(data: bytearray, number: int) -> None:
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)


def _numbers(data: bytes) -> list[int]:
    numbers, number, shift = [], 0, 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number, shift = 0, 0
        elif shift >= 7 * _LONGEST_NUMBER:
            raise ValueError("a number has too many bytes")
    if shift:
        raise ValueError("the last number is cut off")
    return numbers
