"""The bytes of a row that are hashed, and their hash (DESIGN §7). Pure."""

from __future__ import annotations

import hashlib

from assay.envelope import Headers
from services.evidence.domain.entries import Entry

SALT_BYTES = 16


def header_bytes(headers: Headers) -> bytes:
    """Headers as stored and hashed: for each, name and value, every length as 4 bytes
    big-endian; a null value has the length 0xFFFFFFFF."""
    out = bytearray()
    for name, value in headers:
        encoded = name.encode("utf-8", "surrogatepass")
        out += len(encoded).to_bytes(4, "big") + encoded
        out += b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value
    return bytes(out)


def read_header_bytes(data: bytes) -> Headers:
    """The inverse of `header_bytes`."""
    headers: list[tuple[str, bytes | None]] = []
    at = 0

    def take(count: int) -> bytes:
        nonlocal at
        at += count
        return data[at - count : at]

    while at < len(data):
        name = take(int.from_bytes(take(4), "big")).decode("utf-8", "surrogatepass")
        size = take(4)
        headers.append((name, None if size == b"\xff" * 4 else take(int.from_bytes(size, "big"))))
    return tuple(headers)


def leaf_hash(entry: Entry, salt: bytes, header_data: bytes) -> bytes:
    """SHA-256 over salt, value, headers, topic, partition and offset, each variable part led by
    its length (8 bytes big-endian); integers are 8 bytes big-endian (DESIGN §7)."""
    digest = hashlib.sha256(salt)
    for part in (entry.value, header_data, entry.topic.encode()):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    digest.update(entry.partition.to_bytes(8, "big"))
    digest.update(entry.offset.to_bytes(8, "big"))
    return digest.digest()
