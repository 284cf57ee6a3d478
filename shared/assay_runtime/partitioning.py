"""Which partition a key belongs to: murmur2, as Kafka's own producers place keys.

aiokafka's function reads the key byte by byte; this one reads words, twice as fast, and is
tested to agree with it.
"""

from __future__ import annotations

import struct

_SEED, _M, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """A number from 0 to `partitions` - 1."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """32-bit hash of `data`, as org.apache.kafka.common.utils.Utils.murmur2, unsigned."""
    length = len(data)
    mixed = _SEED ^ length
    for word in struct.unpack_from(f"<{length >> 2}I", data):
        word = word * _M & _MASK
        mixed = (mixed * _M ^ (word ^ word >> 24) * _M) & _MASK
    if rest := length & 3:
        mixed = (mixed ^ int.from_bytes(data[-rest:], "little")) * _M & _MASK
    mixed = (mixed ^ mixed >> 13) * _M & _MASK
    return mixed ^ mixed >> 15
