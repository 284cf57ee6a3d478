"""Assay's public SDK: publish wallet events, follow their outcomes, verify signed scores.

Everything named here is public and stays; what is not, may move. Names are loaded when they are
first used, so that verifying a signature does not load a Kafka client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.attestation import (
        AttestationError,
        PublicKey,
        parse_hex_key,
        parse_published_keys,
        verify_score,
    )
    from assay.client import WalletPublisher
    from assay.contracts import Example, iter_examples, load_schema
    from assay.errors import (
        AssayError,
        BrokerError,
        ContractError,
        EnvelopeError,
        RecordTooLarge,
    )
    from assay.events import EVENTS, WalletEventSubmitted, WalletScoreSigned
    from assay.outcomes import Outcome, Outcomes, read_outcome
    from assay.scores import flat_score
    from assay.submission import SubmissionError, submission_from_record
    from assay.topics import Catalogue, Topic, catalogue
    from assay.wallet import AddressError, WalletAddress, checksum_address, parse_address

_HOMES = {
    "AddressError": "assay.wallet",
    "AssayError": "assay.errors",
    "AttestationError": "assay.attestation",
    "BrokerError": "assay.errors",
    "Catalogue": "assay.topics",
    "ContractError": "assay.errors",
    "EVENTS": "assay.events",
    "EnvelopeError": "assay.errors",
    "Example": "assay.contracts",
    "Outcome": "assay.outcomes",
    "Outcomes": "assay.outcomes",
    "PublicKey": "assay.attestation",
    "RecordTooLarge": "assay.errors",
    "SubmissionError": "assay.submission",
    "Topic": "assay.topics",
    "WalletAddress": "assay.wallet",
    "WalletEventSubmitted": "assay.events",
    "WalletPublisher": "assay.client",
    "WalletScoreSigned": "assay.events",
    "catalogue": "assay.topics",
    "checksum_address": "assay.wallet",
    "flat_score": "assay.scores",
    "iter_examples": "assay.contracts",
    "load_schema": "assay.contracts",
    "parse_address": "assay.wallet",
    "parse_hex_key": "assay.attestation",
    "parse_published_keys": "assay.attestation",
    "read_outcome": "assay.outcomes",
    "submission_from_record": "assay.submission",
    "verify_score": "assay.attestation",
}

__all__ = [
    "EVENTS",
    "AddressError",
    "AssayError",
    "AttestationError",
    "BrokerError",
    "Catalogue",
    "ContractError",
    "EnvelopeError",
    "Example",
    "Outcome",
    "Outcomes",
    "PublicKey",
    "RecordTooLarge",
    "SubmissionError",
    "Topic",
    "WalletAddress",
    "WalletEventSubmitted",
    "WalletPublisher",
    "WalletScoreSigned",
    "catalogue",
    "checksum_address",
    "flat_score",
    "iter_examples",
    "load_schema",
    "parse_address",
    "parse_hex_key",
    "parse_published_keys",
    "read_outcome",
    "submission_from_record",
    "verify_score",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
