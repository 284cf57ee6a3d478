"""Attestation of scores: what is signed, how it is verified, whose key it is (SPEC S3.9, X.3).

```python
from assay.attestation import parse_hex_key, verify_score

key = parse_hex_key("02…")
verify_score(key.data, bytes.fromhex(line["signature"]), score=line["score"],
             wallet_address=line["wallet_address"], timestamp_ms=line["timestamp_ms"])
```
"""

from __future__ import annotations

from assay.attestation.bcs import MAX_SCORE, check_score, score_message
from assay.attestation.errors import (
    AttestationError,
    EncodingError,
    PublicKeyError,
    SignatureError,
)
from assay.attestation.keys import (
    PublicKey,
    parse_hex_key,
    parse_jwk,
    parse_published_keys,
    to_jwks,
)
from assay.attestation.sui import (
    SCHEME,
    message_digest,
    normalise_low_s,
    sign_digest,
    verify_message,
    verify_score,
)

__all__ = [
    "MAX_SCORE",
    "SCHEME",
    "AttestationError",
    "EncodingError",
    "PublicKey",
    "PublicKeyError",
    "SignatureError",
    "check_score",
    "message_digest",
    "normalise_low_s",
    "parse_hex_key",
    "parse_jwk",
    "parse_published_keys",
    "score_message",
    "sign_digest",
    "to_jwks",
    "verify_message",
    "verify_score",
]
