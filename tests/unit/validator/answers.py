"""Answered events for the tests of the validator."""

from __future__ import annotations

import json
import uuid
from functools import cache
from typing import Any

from assay.contracts import schema_root
from assay.events import GenerationAnswered
from assay_gate.process import Process, load_process
from assay_runtime.records import Delivery, Record, event_decoder

ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
GOOD = {
    "scoreBreakdown": {
        "activity": 80, "maturity": 70, "diversity": 60, "riskBehavior": 90, "surveyMatch": 50,
    },
    "score": 720,
    "reasoning": "Steady activity over years.",
    "risk_factors": ["young"],
    "strengths": ["repaid"],
}  # fmt: skip
FEATURES = {
    "walletAge": 10, "totalTransactions": 37, "avgTxsPerMonth": 1.5, "uniqueCounterparties": 3,
    "protocolsUsed": 0, "protocolNames": [], "borrowCount": 0, "repayCount": 0,
    "liquidateCount": 0, "numTokens": 1, "diversificationScore": 0, "concentrationRisk": 1.0,
    "supplyCount": 0, "withdrawCount": 0, "poapCount": 0, "nftCount": 0, "ethBalance": 0.1,
}  # fmt: skip


@cache
def wallet_score() -> Process:
    """The process that ships with the contracts."""
    return load_process(schema_root() / "processes" / "wallet_score")


def answered(
    raw: Any = None, *, process: Process | None = None, **changes: Any
) -> GenerationAnswered:
    """An answered event, of a wallet score if nothing else; `changes` go into meta or the event."""
    process = process or wallet_score()
    meta = {
        "request_id": str(uuid.uuid4()),
        "tenant_id": "default",
        "wallet": ADDRESS.lower(),
        "process_id": process.id,
        "process_version": process.version,
        "process_hash": process.hash,
        "step": process.first_model_step,
        "unit_id": "unit-1",
        "attempt": 1,
        "shadow": False,
        "unsealed": False,
        "accepted_at_ms": 1,
    }
    fields: dict[str, Any] = {
        "input": {
            "address": ADDRESS,
            "features": FEATURES,
            "questionnaire": "No questionnaire data provided.",
            "has_questionnaire": False,
            "evm_source": "inline",
            "evm_sha256": "cd" * 32,
        },
        "outcome": "answered",
        "raw": raw if isinstance(raw, str) else json.dumps(GOOD if raw is None else raw),
        "provider": "ollama",
        "model": "scripted",
        "finish_reason": "stop",
        "temperature": 0.3,
        "seed": 1,
        "prompt": "p",
        "prompt_sha256": "ab" * 32,
    }
    for name, value in changes.items():
        (meta if name in meta else fields)[name] = value
    return GenerationAnswered.model_validate({"meta": meta, **fields})


def delivery(event: GenerationAnswered, event_id: str = "answer-1") -> Delivery[GenerationAnswered]:
    """The event as the validator gets it from the bus."""
    headers = (
        ("ce_id", event_id.encode()), ("ce_source", b"/assay/scorer"), ("ce_specversion", b"1.0"),
        ("ce_type", event.type.encode()), ("ce_requestid", event.meta.request_id.encode()),
    )  # fmt: skip
    record = Record(event.type, 0, 0, 0, event.key.encode(), event.to_bytes(), headers)
    return event_decoder(GenerationAnswered)(record)
