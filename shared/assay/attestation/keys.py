"""Public keys: identity, publication and reading (RFC 7517, RFC 7638, RFC 8812).

A key's id is its RFC 7638 thumbprint: SHA-256 over `{"crv":"secp256k1","kty":"EC","x":…,"y":…}`,
base64url without padding. A JWKS here only publishes keys; score signatures are no JWS.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from coincurve import PublicKey as CurvePoint

from assay.attestation.errors import PublicKeyError
from assay.attestation.sui import curve_point

_CURVE = "secp256k1"
_HEX_KEY = re.compile(r"(?:0x)?([0-9a-fA-F]{66})", re.ASCII)


@dataclass(frozen=True)
class PublicKey:
    """A secp256k1 key, 33 bytes compressed; PublicKeyError where the bytes are none."""

    data: bytes

    def __post_init__(self) -> None:
        curve_point(self.data)

    @property
    def hex(self) -> str:
        """66 lower-case hex digits, as `GET /public-key` shows them."""
        return self.data.hex()

    @cached_property
    def kid(self) -> str:
        """RFC 7638 thumbprint."""
        members = {"crv": _CURVE, "kty": "EC", **self._coordinates()}
        canonical = json.dumps(members, sort_keys=True, separators=(",", ":"))
        return _base64url(hashlib.sha256(canonical.encode()).digest())

    def to_jwk(self) -> dict[str, str]:
        """The key as a JSON Web Key."""
        return {
            "kty": "EC",
            "crv": _CURVE,
            **self._coordinates(),
            "kid": self.kid,
            "alg": "ES256K",
            "use": "sig",
        }

    def _coordinates(self) -> dict[str, str]:
        x, y = curve_point(self.data).point()
        return {"x": _base64url(x.to_bytes(32, "big")), "y": _base64url(y.to_bytes(32, "big"))}


def to_jwks(keys: Iterable[PublicKey]) -> dict[str, list[dict[str, str]]]:
    """The body of `/.well-known/jwks.json`."""
    return {"keys": [key.to_jwk() for key in keys]}


def parse_hex_key(text: str) -> PublicKey:
    """The key in 66 hex digits, with or without 0x."""
    match = _HEX_KEY.fullmatch(text.strip())
    if match is None:
        raise PublicKeyError("a public key is 66 hex digits (33 bytes, compressed)")
    return PublicKey(bytes.fromhex(match[1]))


def parse_jwk(jwk: Mapping[str, Any]) -> PublicKey:
    """The key in a JWK; a `kid` is the publisher's own name for it and is not checked."""
    if jwk.get("kty") != "EC" or jwk.get("crv") != _CURVE:
        raise PublicKeyError(f"the JWK is no EC key on {_CURVE}")
    if "d" in jwk:
        raise PublicKeyError("the JWK holds a private key; give the public one")
    x, y = (_coordinate(jwk, name) for name in ("x", "y"))
    try:
        point = CurvePoint(b"\x04" + x + y)
    except ValueError as error:
        raise PublicKeyError("x and y of the JWK are no point on the curve") from error
    return PublicKey(point.format(compressed=True))


def parse_published_keys(text: str) -> list[PublicKey]:
    """The keys in what a signer publishes: hex, `{"public_key": hex}`, a JWK, or a JWKS.

    Of a JWKS the keys on secp256k1, at least one; keys on other curves are left out, broken ones
    refused.
    """
    stripped = text.strip()
    if not stripped.startswith("{"):
        return [parse_hex_key(stripped)]
    try:
        document = json.loads(stripped)
    except (ValueError, RecursionError) as error:
        raise PublicKeyError("the key document begins like JSON but is none") from error
    if "public_key" in document:
        published = document["public_key"]
        if not isinstance(published, str):
            raise PublicKeyError("public_key of the key document is no string")
        return [parse_hex_key(published)]
    if "keys" in document:
        entries = document["keys"]
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            raise PublicKeyError("keys of the JWKS is no list of objects")
        keys = [parse_jwk(entry) for entry in entries if entry.get("crv") == _CURVE]
        if not keys:
            raise PublicKeyError(f"the JWKS has no key on {_CURVE}")
        return keys
    if "kty" in document:
        return [parse_jwk(document)]
    raise PublicKeyError("the key document has neither public_key, nor keys, nor kty")


def _coordinate(jwk: Mapping[str, Any], name: str) -> bytes:
    text = jwk.get(name)
    if not isinstance(text, str):
        raise PublicKeyError(f"{name} of the JWK is missing or no string")
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise PublicKeyError(f"{name} of the JWK is no base64url") from error
    if len(data) != 32:
        raise PublicKeyError(f"{name} of the JWK has {len(data)} bytes, not 32")
    return data


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
