"""Public keys: thumbprint, JWK, JWKS and what is read as a key."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from coincurve import PrivateKey

from assay.attestation import PublicKey, PublicKeyError, parse_jwk, parse_published_keys, to_jwks

KEY = PublicKey(PrivateKey(b"\x07" * 32).public_key.format(compressed=True))
OTHER = PublicKey(PrivateKey(b"\x08" * 32).public_key.format(compressed=True))
# The key 1 has the group's generator as its public key, whose coordinates stand in SEC 2.
GENERATOR = PublicKey(PrivateKey((1).to_bytes(32, "big")).public_key.format(compressed=True))


def test_jwk_members() -> None:
    """X.3: RFC 8812 names for curve and algorithm; x and y of the generator are the standard's."""
    jwk = GENERATOR.to_jwk()
    assert jwk["x"] == "eb5mfvncu6xVoGKVzocLBwKb_NstzijZWfKBWxb4F5g"
    assert jwk["y"] == "SDradyajxGVdpPv8DhEIqP0XtEimhVQZnEfQj_sQ1Lg"
    assert (jwk["kty"], jwk["crv"], jwk["alg"], jwk["use"]) == ("EC", "secp256k1", "ES256K", "sig")


def test_kid_is_the_rfc7638_thumbprint() -> None:
    """X.3: anybody can compute a key's id from its JWK."""
    jwk = KEY.to_jwk()
    canonical = f'{{"crv":"secp256k1","kty":"EC","x":"{jwk["x"]}","y":"{jwk["y"]}"}}'
    digest = hashlib.sha256(canonical.encode()).digest()
    assert jwk["kid"] == KEY.kid == base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert KEY.kid != OTHER.kid


@pytest.mark.parametrize(
    "text",
    [
        KEY.hex,
        KEY.hex.upper(),
        "0x" + KEY.hex,
        f"  {KEY.hex}\n",
        json.dumps({"public_key": KEY.hex}),
        json.dumps({"public_key": "0x" + KEY.hex, "kid": "x"}),
        json.dumps(KEY.to_jwk()),
        json.dumps(to_jwks([KEY])),
        json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "x": "", "y": ""}, KEY.to_jwk()]}),
    ],
)
def test_forms_of_a_published_key(text: str) -> None:
    """X.3: hex, `/public-key`, JWK and JWKS all give the key."""
    assert parse_published_keys(text) == [KEY]


def test_a_jwks_gives_all_its_keys() -> None:
    """X.3: during a rotation two keys are published."""
    assert parse_published_keys(json.dumps(to_jwks([KEY, OTHER]))) == [KEY, OTHER]


def _jwk(**changes: Any) -> str:
    return json.dumps({**KEY.to_jwk(), **changes})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "66 hex digits"),
        ("zz", "66 hex digits"),
        (KEY.hex[:-2], "66 hex digits"),
        (KEY.hex[2:], "66 hex digits"),
        (KEY.hex + "00", "66 hex digits"),
        ("05" + KEY.hex[2:], "no point"),
        ("02" + "ff" * 32, "no point"),
        ("{", "begins like JSON"),
        ("{" + '"a":{' * 100_000, "begins like JSON"),
        ("{}", "neither public_key"),
        ('{"public_key": 5}', "no string"),
        ('{"keys": {}}', "no list"),
        ('{"keys": [1]}', "no list"),
        ('{"keys": []}', "no key on secp256k1"),
        (_jwk(kty="RSA"), "no EC key"),
        (_jwk(crv="P-256"), "no EC key"),
        (_jwk(x=None), "missing or no string"),
        (_jwk(x="!!!"), "no base64url"),
        (_jwk(x="é"), "no base64url"),
        (_jwk(x="AAAA"), "3 bytes"),
        (_jwk(x=KEY.to_jwk()["y"]), "no point"),
        (_jwk(d="AAAA"), "private key"),
        (json.dumps({"keys": [{**KEY.to_jwk(), "d": "AAAA"}]}), "private key"),
    ],
)
def test_what_is_no_published_key(text: str, reason: str) -> None:
    """X.4: a key that cannot be used is refused with the reason."""
    with pytest.raises(PublicKeyError, match=reason):
        parse_published_keys(text)


def test_parse_jwk_round_trip() -> None:
    """X.3: what is published reads back as the same key."""
    assert parse_jwk(KEY.to_jwk()) == KEY
