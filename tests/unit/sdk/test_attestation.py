"""The signed bytes, the signatures, and what must be refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coincurve import PrivateKey

from assay.attestation import (
    EncodingError,
    PublicKeyError,
    SignatureError,
    check_score,
    message_digest,
    normalise_low_s,
    score_message,
    sign_digest,
    verify_message,
    verify_score,
)
from assay.attestation.bcs import uleb128
from assay.attestation.sui import ORDER

VECTORS = Path(__file__).parents[2] / "vectors"


def _vectors(name: str) -> Any:
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


GOLDEN = _vectors("sui_golden.json")["vectors"]
NEGATIVE = _vectors("sui_negative.json")["vectors"]
EDGES = _vectors("digest_edges.json")


def _signed_fields(vector: dict[str, Any]) -> dict[str, Any]:
    return {
        "score": int(vector["score"]),
        "wallet_address": vector["wallet_address"],
        "timestamp_ms": int(vector["timestamp_ms"]),
    }


def test_the_vectors_are_all_there() -> None:
    """S3.9: 60 golden, 38 negative, 6 digest edges."""
    assert (len(GOLDEN), len(NEGATIVE), len(EDGES)) == (60, 38, 6)


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda v: f"{v['id']}-{v['note'][:40]}")
def test_golden_vector(vector: dict[str, Any]) -> None:
    """S3.9: message, digest and signature equal the reference libraries' byte for byte."""
    message = score_message(**_signed_fields(vector))
    assert message.hex() == vector["message_hex"]
    digest = message_digest(message)
    assert digest.hex() == vector["digest_hex"]
    key = PrivateKey(bytes.fromhex(vector["private_key_hex"]))
    public_key = key.public_key.format(compressed=True)
    assert public_key.hex() == vector["public_key_hex"]
    signature = sign_digest(key, digest)
    assert signature.hex() == vector["signature_hex"]
    verify_score(public_key, signature, **_signed_fields(vector))


@pytest.mark.parametrize("vector", NEGATIVE, ids=lambda v: f"{v['id']}-{v['kind']}")
def test_negative_vector(vector: dict[str, Any]) -> None:
    """S3.9: high s, wrong lengths, wrong messages and wrong keys are refused."""
    with pytest.raises((SignatureError, PublicKeyError)):
        verify_score(
            bytes.fromhex(vector["public_key_hex"]),
            bytes.fromhex(vector["signature_hex"]),
            **_signed_fields(vector),
        )


@pytest.mark.parametrize("edge", EDGES, ids=lambda e: e["digest_hex"][:8] + e["digest_hex"][-4:])
def test_digest_edge(edge: dict[str, str]) -> None:
    """S3.9: digests at 0, around the group order and at the top sign as the reference does."""
    key = PrivateKey(bytes.fromhex(edge["private_key_hex"]))
    signature = sign_digest(key, bytes.fromhex(edge["digest_hex"]))
    assert signature.hex() == edge["signature_hex"]


def test_negatives_are_refused_for_their_own_reason() -> None:
    """S3.9: high s and wrong lengths are found as such, not by accident."""
    reasons = {}
    for vector in NEGATIVE:
        try:
            verify_score(
                bytes.fromhex(vector["public_key_hex"]),
                bytes.fromhex(vector["signature_hex"]),
                **_signed_fields(vector),
            )
        except (SignatureError, PublicKeyError) as error:
            reasons[vector["id"]] = str(error)
    assert "high s" in reasons[1]
    assert "64 bytes, not 63" in reasons[9]
    assert "64 bytes, not 65" in reasons[10]
    assert "64 bytes, not 0" in reasons[16]
    assert "outside 1 to n - 1" in reasons[17]
    assert "33 bytes (compressed), not 32" in reasons[37]
    assert "33 bytes (compressed), not 64" in reasons[38]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"score": True}, "score"),
        ({"score": 640.0}, "score"),
        ({"score": "640"}, "score"),
        ({"score": -1}, "score"),
        ({"score": 2**64}, "score"),
        ({"score": 10**5000}, "score"),
        ({"timestamp_ms": False}, "timestamp_ms"),
        ({"timestamp_ms": None}, "timestamp_ms"),
        ({"timestamp_ms": 2**64}, "timestamp_ms"),
        ({"wallet_address": b"0xab"}, "wallet_address"),
        ({"wallet_address": "\ud800"}, "wallet_address"),
    ],
)
def test_values_that_cannot_be_encoded(fields: dict[str, Any], name: str) -> None:
    """S3.9: no value is coerced on its way into a signed message."""
    with pytest.raises(EncodingError, match=name):
        score_message(**{"score": 1, "wallet_address": "0x", "timestamp_ms": 1, **fields})


@pytest.mark.parametrize("score", [0, 1, 1000])
def test_scores_that_may_be_signed(score: int) -> None:
    """S1.1: 0 to 1000, both included."""
    assert check_score(score) == score


@pytest.mark.parametrize("score", [-1, 1001, 2**63, True, 5.0, "5", None])
def test_scores_that_may_not_be_signed(score: object) -> None:
    """S1.1: neither beyond 0 to 1000 nor anything but an integer."""
    with pytest.raises(EncodingError):
        check_score(score)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16383, "ff7f"), (16384, "808001"),
     (2**31 - 1, "ffffffff07")],
)  # fmt: skip
def test_uleb128(number: int, encoded: str) -> None:
    """S3.9: lengths are ULEB128, bounded as BCS bounds them."""
    assert uleb128(number).hex() == encoded


def test_uleb128_bounds() -> None:
    """S3.9: a length beyond BCS's bound is refused."""
    for number in (-1, 2**31):
        with pytest.raises(EncodingError):
            uleb128(number)


def test_low_s_is_restored_and_the_high_twin_refused() -> None:
    """S3.9: a back end's high s is mended before use; as it is, it never verifies."""
    key = PrivateKey(b"\x07" * 32)
    public_key = key.public_key.format(compressed=True)
    low = sign_digest(key, message_digest(b"m"))
    high = low[:32] + (ORDER - int.from_bytes(low[32:], "big")).to_bytes(32, "big")
    assert normalise_low_s(high) == low
    assert normalise_low_s(low) == low
    verify_message(public_key, b"m", low)
    with pytest.raises(SignatureError, match="high s"):
        verify_message(public_key, b"m", high)
    with pytest.raises(SignatureError, match="not 65"):
        normalise_low_s(low + b"\x00")


def test_uncompressed_and_off_curve_keys_are_refused() -> None:
    """S3.9: 33 compressed bytes on the curve, nothing else."""
    key = PrivateKey(b"\x07" * 32)
    signature = sign_digest(key, message_digest(b"m"))
    uncompressed = key.public_key.format(compressed=False)
    for wrong in (
        uncompressed,
        b"",
        b"\x00" * 33,
        b"\x05" + b"\x01" * 32,
        b"\x02" + b"\xff" * 32,
    ):
        with pytest.raises(PublicKeyError):
            verify_message(wrong, b"m", signature)
