"""Signatures against an independent library."""

from __future__ import annotations

import os

from coincurve import PrivateKey
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.attestation import (
    SignatureError,
    message_digest,
    normalise_low_s,
    score_message,
    sign_digest,
    verify_message,
)
from assay.attestation.sui import ORDER

EXAMPLES = int(os.environ.get("ASSAY_SIGNATURE_EXAMPLES", "300"))
U64 = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def _other_library(secret: int, message: bytes) -> bytes:
    key = ec.derive_private_key(secret, ec.SECP256K1())
    der = key.sign(message, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))
    r, s = utils.decode_dss_signature(der)
    return normalise_low_s(r.to_bytes(32, "big") + s.to_bytes(32, "big"))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(1, ORDER - 1), U64, U64, TEXT)
def test_two_libraries_give_the_same_bytes(
    secret: int, score: int, timestamp_ms: int, address: str
) -> None:
    """S3.9: RFC 6979 with low s in coincurve equals cryptography's, byte for byte."""
    message = score_message(score=score, wallet_address=address, timestamp_ms=timestamp_ms)
    key = PrivateKey(secret.to_bytes(32, "big"))
    signature = sign_digest(key, message_digest(message))
    assert signature == _other_library(secret, message)
    assert int.from_bytes(signature[32:], "big") <= ORDER // 2
    verify_message(key.public_key.format(compressed=True), message, signature)


@settings(max_examples=EXAMPLES, deadline=None)
@given(U64, U64, TEXT, U64, U64, TEXT)
def test_different_values_have_different_messages(
    score: int, timestamp_ms: int, address: str, score2: int, timestamp2: int, address2: str
) -> None:
    """S3.9: no two payloads share their bytes."""
    first = score_message(score=score, wallet_address=address, timestamp_ms=timestamp_ms)
    second = score_message(score=score2, wallet_address=address2, timestamp_ms=timestamp2)
    same = (score, timestamp_ms, address) == (score2, timestamp2, address2)
    assert (first == second) is same


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 511), st.binary(max_size=80))
def test_no_flipped_bit_verifies(bit: int, message: bytes) -> None:
    """S3.9: a signature with one bit changed is refused."""
    key = PrivateKey(b"\x07" * 32)
    signature = bytearray(sign_digest(key, message_digest(message)))
    signature[bit // 8] ^= 1 << bit % 8
    try:
        verify_message(key.public_key.format(compressed=True), message, bytes(signature))
    except SignatureError:
        return
    raise AssertionError(f"bit {bit} does not matter")
