"""From a validated score to the signed event (DESIGN §6, SPEC S3.9)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from assay.attestation import SCHEME, check_score, score_message
from assay.events import Attestation, WalletScoreSigned, WalletScoreValidated
from assay.ids import event_id
from assay.wallet import parse_address
from services.signer.domain.reservation import Claim

_METADATA = (
    "scoreBreakdown", "reasoning", "risk_factors", "strengths", "fallback", "model", "attempts",
    "evm_source", "evm_sha256",
)  # fmt: skip
_PROCESS = ("process_id", "process_version", "process_hash")


class Unsignable(Exception):
    """A validated event that must not be signed; `pointer` names the field."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(message)
        self.pointer = pointer


@dataclass(frozen=True, slots=True)
class ValidatedScore:
    """A validated event as it came: its `ce_id`, its value's bytes, and what they say."""

    event_id: str
    value: bytes
    event: WalletScoreValidated


def claim_of(validated: ValidatedScore, network: str) -> Claim:
    """The claim a validated score makes.

    Raises AddressError or EncodingError where address or score may not be signed, Unsignable
    where the event contradicts itself, is a shadow's or follows from no service's request.
    """
    event = validated.event
    if event.meta.shadow:
        raise Unsignable("/meta/shadow", "a shadow run's score is compared, never signed")
    if event.meta.unsealed:
        raise Unsignable("/meta/unsealed", "a score that no service asked for is never signed")
    address = parse_address(event.address)
    if event.meta.wallet != address.key:
        raise Unsignable("/meta/wallet", "meta.wallet is not the lower-case form of address")
    return Claim(
        network=network,
        request_id=event.meta.request_id,
        wallet=address.spelled,
        score=check_score(event.score),
        source_event_id=validated.event_id,
        source_sha256=hashlib.sha256(validated.value).digest(),
        body=_body(validated),
    )


def _body(validated: ValidatedScore) -> bytes:
    """The signed event without timestamp and attestations, as JSON."""
    event = validated.event
    shown = event.model_dump(mode="json", include=set(_METADATA))
    content = {
        "meta": event.meta.caused_by(validated.event_id, validated.value).model_dump(mode="json"),
        "score": event.score,
        "wallet_address": event.address,
        "metadata": {
            **{name: shown[name] for name in _METADATA},
            **{name: getattr(event.meta, name) for name in _PROCESS},
        },
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


@dataclass(frozen=True, slots=True)
class UnsignedScore:
    """A reserved payload: what to sign, and the event to put the signature into."""

    message: bytes
    content: dict[str, Any]

    def signed(self, network: str, kid: str, public_key: bytes, signature: bytes) -> bytes:
        """The signed event's value."""
        attestation = Attestation(
            scheme=SCHEME,
            network=network,
            kid=kid,
            public_key=public_key.hex(),
            signature=signature.hex(),
        )
        return WalletScoreSigned.model_validate(
            {**self.content, "attestations": [attestation]}
        ).to_bytes()


def unsigned_score(body: bytes, timestamp_ms: int) -> UnsignedScore:
    """The payload of a reservation; exactly three of its fields are signed."""
    content = {**json.loads(body), "timestamp_ms": timestamp_ms}
    message = score_message(
        score=content["score"],
        wallet_address=content["wallet_address"],
        timestamp_ms=timestamp_ms,
    )
    return UnsignedScore(message, content)


def signed_event_id(source_event_id: str, value: bytes) -> str:
    """`ce_id` of a signed event (DESIGN §2, the one id rule)."""
    return event_id(source_event_id, WalletScoreSigned.type, value)
