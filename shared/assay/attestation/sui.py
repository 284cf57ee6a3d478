"""ECDSA on secp256k1 over SHA-256, as the Sui contract verifies it (SPEC S3.9, DESIGN §6).

A signature is 64 bytes, r then s, big-endian, with s in the lower half of the group: the chain
refuses high s. Nonces follow RFC 6979, so equal input gives equal bytes.
"""

from __future__ import annotations

import hashlib

from coincurve import PrivateKey
from coincurve import PublicKey as CurvePoint
from coincurve.ecdsa import cdata_to_der, deserialize_compact

from assay.attestation.bcs import score_message
from assay.attestation.errors import PublicKeyError, SignatureError

SCHEME = "sui-secp256k1"
SIGNATURE_BYTES = 64
PUBLIC_KEY_BYTES = 33
ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141


def message_digest(message: bytes) -> bytes:
    """SHA-256 of the message, 32 bytes: what is signed."""
    return hashlib.sha256(message).digest()


def sign_digest(key: PrivateKey, digest: bytes) -> bytes:
    """Deterministic low-s signature over a 32-byte digest, 64 bytes."""
    return bytes(key.sign_recoverable(digest, hasher=None)[:SIGNATURE_BYTES])


def normalise_low_s(signature: bytes) -> bytes:
    """The low-s twin of a signature; back ends outside libsecp256k1 give high s half the time."""
    _check_length(signature)
    s = int.from_bytes(signature[32:], "big")
    if s <= ORDER // 2:
        return signature
    return signature[:32] + (ORDER - s).to_bytes(32, "big")


def verify_message(public_key: bytes, message: bytes, signature: bytes) -> None:
    """Return if `signature` over `message` is the key's and the chain would take it.

    `public_key` is 33 bytes. SignatureError says what is wrong with the signature,
    PublicKeyError that the key is none.
    """
    _check_length(signature)
    r = int.from_bytes(signature[:32], "big")
    s = int.from_bytes(signature[32:], "big")
    if not (0 < r < ORDER and 0 < s < ORDER):
        raise SignatureError("r or s of the signature is outside 1 to n - 1")
    if s > ORDER // 2:
        raise SignatureError("the signature has high s, which the contract refuses")
    point = curve_point(public_key)
    der = cdata_to_der(deserialize_compact(signature))
    if not point.verify(der, message_digest(message), hasher=None):
        raise SignatureError("the signature does not fit the key, score, address and timestamp")


def verify_score(
    public_key: bytes, signature: bytes, *, score: int, wallet_address: str, timestamp_ms: int
) -> None:
    """Verify the signature of a score as the contract does: any u64, any string.

    Raises SignatureError, PublicKeyError or EncodingError with the reason.
    """
    message = score_message(score=score, wallet_address=wallet_address, timestamp_ms=timestamp_ms)
    verify_message(public_key, message, signature)


def curve_point(public_key: bytes) -> CurvePoint:
    """The point of a compressed key; PublicKeyError where the bytes are none."""
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise PublicKeyError(
            f"a public key has {PUBLIC_KEY_BYTES} bytes (compressed), not {len(public_key)}"
        )
    try:
        return CurvePoint(public_key)
    except ValueError as error:
        raise PublicKeyError("the bytes are no point on secp256k1") from error


def _check_length(signature: bytes) -> None:
    if len(signature) != SIGNATURE_BYTES:
        raise SignatureError(f"a signature has {SIGNATURE_BYTES} bytes, not {len(signature)}")
