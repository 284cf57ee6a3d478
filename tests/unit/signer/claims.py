"""Claims and ledgers for the tests of the signer."""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

from assay.events import Meta, ScoreBreakdown, WalletScoreValidated
from services.signer.adapters.ledger_postgres import PostgresLedger
from services.signer.adapters.ledger_sqlite import SqliteLedger
from services.signer.domain.ports import Ledger, Signature
from services.signer.domain.reservation import Claim
from services.signer.domain.signed_event import ValidatedScore

NETWORK = "sui:testnet"
NOW = 1_790_000_000_000
WALLET = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
OTHER_WALLET = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359"


def claim(
    request_id: str | None = None,
    *,
    wallet: str = WALLET,
    score: int = 640,
    source: str | None = None,
    sha256: bytes = b"\x01" * 32,
    network: str = NETWORK,
    body: bytes = b'{"a":1}',
) -> Claim:
    """A claim; without arguments of a request and a source event of its own."""
    return Claim(
        network=network,
        request_id=request_id or str(uuid.uuid4()),
        wallet=wallet,
        score=score,
        source_event_id=source or str(uuid.uuid4()),
        source_sha256=sha256,
        body=body,
    )


def signature(of: Claim, event: bytes = b"signed") -> Signature:
    """A signed event for a claim; its id follows from its bytes."""
    return Signature(of.request, hashlib.sha256(event).hexdigest(), event)


def validated(
    *, address: str = WALLET, score: int = 640, source: str | None = None, **changes: Any
) -> ValidatedScore:
    """A validated event as the signer gets it; names of `Meta` go into meta."""
    meta = {
        "request_id": str(uuid.uuid4()),
        "tenant_id": "default",
        "wallet": address.lower(),
        "process_id": "wallet_score",
        "process_version": "1.0.0",
        "process_hash": "ab" * 32,
        "attempt": 2,
        "accepted_at_ms": NOW - 5_000,
    }
    fields = {
        "address": address,
        "score": score,
        "scoreBreakdown": dict.fromkeys(ScoreBreakdown.model_fields, 64),
        "reasoning": "Steady activity over three years – no liquidations.",
        "risk_factors": ["thin diversification"],
        "strengths": ["repaid all loans"],
        "attempts": 2,
        "model": "simulator",
        "evm_source": "inline",
        "evm_sha256": "cd" * 32,
    }
    for name, value in changes.items():
        (meta if name in Meta.model_fields else fields)[name] = value
    value = json.dumps({"meta": meta, **fields}, ensure_ascii=False).encode()
    event = WalletScoreValidated.model_validate_json(value)
    return ValidatedScore(source or str(uuid.uuid4()), value, event)


def open_ledger(address: str) -> Ledger:
    """The ledger at a file path or a PostgreSQL URL."""
    if address.startswith("postgresql://"):
        return PostgresLedger(address)
    return SqliteLedger(Path(address))
