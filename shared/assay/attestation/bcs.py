"""The signed message of Sui scores in Binary Canonical Serialisation (DESIGN §6).

`IntentMessage{intent: u8 = 0, timestamp_ms: u64, data: ScoreUpdatePayload{score: u64,
wallet_address: String}}` is laid out as

    00 | timestamp_ms, u64 little-endian | score, u64 little-endian | ULEB128(n) | n bytes of UTF-8

This is the encoding alone: it takes every u64 and every string. What may be signed is decided
by `check_score`.
"""

from __future__ import annotations

import struct

from assay.attestation.errors import EncodingError

MAX_SCORE = 1000
_INTENT = b"\x00"
_U64_MAX = 2**64 - 1
# BCS bounds every sequence length.
_MAX_LENGTH = 2**31 - 1


def score_message(*, score: int, wallet_address: str, timestamp_ms: int) -> bytes:
    """The bytes whose SHA-256 is signed; EncodingError names the value that does not fit."""
    if not isinstance(wallet_address, str):
        raise EncodingError(f"wallet_address is a string, not {type(wallet_address).__name__}")
    try:
        address = wallet_address.encode("utf-8")
    except UnicodeEncodeError as error:
        raise EncodingError("wallet_address holds a lone surrogate, which is no text") from error
    return b"".join(
        (
            _INTENT,
            _u64("timestamp_ms", timestamp_ms),
            _u64("score", score),
            uleb128(len(address)),
            address,
        )
    )


def check_score(score: object) -> int:
    """The score, if it may be signed: an integer 0 to 1000 (SPEC S1.1); EncodingError if not."""
    if type(score) is not int:
        raise EncodingError(f"score is an integer, not {type(score).__name__}")
    if not 0 <= score <= MAX_SCORE:
        raise EncodingError(f"score is {_shown(score)}, outside 0 to {MAX_SCORE}")
    return score


def uleb128(number: int) -> bytes:
    """Unsigned LEB128 of a length."""
    if not 0 <= number <= _MAX_LENGTH:
        raise EncodingError(f"length {_shown(number)} is outside 0 to {_MAX_LENGTH}")
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _u64(name: str, number: object) -> bytes:
    # bool is an int to Python, and True would be signed as the score 1.
    if type(number) is not int:
        raise EncodingError(f"{name} is an integer, not {type(number).__name__}")
    if not 0 <= number <= _U64_MAX:
        raise EncodingError(f"{name} is {_shown(number)}, outside 0 to 2^64 - 1")
    return struct.pack("<Q", number)


def _shown(number: int) -> str:
    """The number, or its size where its digits would flood a message."""
    return str(number) if number.bit_length() <= 128 else f"a {number.bit_length()}-bit number"
