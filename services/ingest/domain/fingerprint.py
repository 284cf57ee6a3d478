"""Hashes by which others recognise wallet data and whole submissions.

`evm_sha256` can be recomputed by a stranger from the accepted event. The canonical bytes are
compact JSON, UTF-8 without escapes beyond the necessary (`"`, `\\`, control characters), members
sorted by code point, no whitespace, integers with all their digits, other numbers as the shortest
text that reads back as the same double, in Python's spelling (`1.0`, `1e+16`, `1e-07`). In Python:

    json.dumps(evm_data, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()

RFC 8785 is not used because it writes every number as a double, and raw token balances are larger
than 2^53.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any


def canonical_bytes(value: Any) -> bytes:
    """Canonical JSON of a normalised value; ValueError for NaN, Infinity and lone surrogates."""
    return json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    ).encode()


def canonical_evm_bytes(evm_data: Mapping[str, Any]) -> bytes:
    """The bytes that `evm_sha256` is taken over (SPEC S3.8)."""
    return canonical_bytes(evm_data)


def evm_sha256(evm_data: Mapping[str, Any]) -> str:
    """Hex SHA-256 of the canonical bytes of the wallet data."""
    return hashlib.sha256(canonical_evm_bytes(evm_data)).hexdigest()


def content_sha256(
    address: str,
    questionnaire: Sequence[Mapping[str, Any]],
    evm_data_sha256: str | None,
) -> str:
    """Hex SHA-256 by which a repeat of a request id is told from other content (DESIGN §2).

    Whitespace and the order of members make no difference, an absent questionnaire equals an
    empty one; the spelling of the address counts, because that spelling is signed.
    """
    content = {
        "address": address,
        "questionnaire": list(questionnaire),
        "evm_sha256": evm_data_sha256,
    }
    return hashlib.sha256(canonical_bytes(content)).hexdigest()
