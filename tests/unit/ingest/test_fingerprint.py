"""The hash of wallet data that a stranger recomputes (SPEC S3.8, X.3)."""

from __future__ import annotations

import hashlib
import json

import pytest

from services.ingest.domain.fingerprint import canonical_evm_bytes, evm_sha256
from tests.data.wallet_records import wallet_record


def test_canonical_bytes_are_as_documented() -> None:
    """S3.8: sorted by code point, compact, UTF-8, exact integers, shortest doubles."""
    data = {"b": [1, 1.0, 2**80, 1e16, 1e-7, 0.1], "a": {"ü": "ß\n", "\ue000": None, "😀": True}}
    assert (
        canonical_evm_bytes(data)
        == (
            '{"a":{"ü":"ß\\n","\ue000":null,"😀":true},'
            '"b":[1,1.0,1208925819614629174706176,1e+16,1e-07,0.1]}'
        ).encode()
    )


def test_the_hash_is_fixed() -> None:
    """X.3: a change of the canonical form would orphan every hash ever signed beside."""
    data = {"wallet": "0xab", "eth_balance": 0.5, "n": 2**70}
    text = b'{"eth_balance":0.5,"n":1180591620717411303424,"wallet":"0xab"}'
    assert evm_sha256(data) == hashlib.sha256(text).hexdigest()


def test_the_hash_survives_a_round_trip() -> None:
    """X.3: reading the data back from an event gives the same hash."""
    record = wallet_record("rich")
    again = json.loads(json.dumps(record, indent=2, ensure_ascii=True))
    assert evm_sha256(dict(reversed(again.items()))) == evm_sha256(record)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "\ud800"])
def test_data_that_was_not_normalised_has_no_hash(bad: object) -> None:
    """X.5: never a hash of something that is no JSON."""
    with pytest.raises(ValueError, match=r"JSON compliant|surrogates"):
        evm_sha256({"a": bad})
