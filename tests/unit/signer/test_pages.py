"""`GET /public-key` and the JWKS (issue 3)."""

from __future__ import annotations

import httpx
from coincurve import PrivateKey

from assay.attestation import parse_hex_key, parse_published_keys
from services.signer.pages import build_pages

KEY = parse_hex_key(PrivateKey(b"\x07" * 32).public_key.format().hex())


async def test_both_pages_publish_the_same_key() -> None:
    """S3.9, X.3: whoever reads either gets the key that `assay verify` takes."""
    transport = httpx.ASGITransport(build_pages(KEY, "sui:testnet"))
    async with httpx.AsyncClient(transport=transport, base_url="http://signer") as http:
        shown = await http.get("/public-key")
        assert shown.json() == {
            "public_key": KEY.data.hex(), "kid": KEY.kid, "network": "sui:testnet",
        }  # fmt: skip
        jwks = await http.get("/.well-known/jwks.json")
        assert jwks.headers["content-type"].startswith("application/jwk-set+json")
        for answer in (shown, jwks):
            assert parse_published_keys(answer.text) == [KEY]
        missing = await http.get("/private-key")
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
        assert "application/problem+json" in missing.headers["content-type"]
