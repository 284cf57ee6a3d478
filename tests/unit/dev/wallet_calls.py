"""Calls a scorer would make for the shipped wallet_score process, and the gate that judges them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay_gate.process import load_process

REPO = Path(__file__).parents[3]
PROCESS = load_process(REPO / "schemas" / "processes" / "wallet_score")
STEP = PROCESS.first_model_step
GATE = PROCESS.gate(STEP)
QUESTIONNAIRE = (
    "Q1: Who controls this wallet?\nA1: individual\n\nQ2: Loan purpose?\nA2: working capital"
)
FEATURES: dict[str, Any] = {
    "walletAge": 1262,
    "totalTransactions": 2681,
    "avgTxsPerMonth": 63.73,
    "uniqueCounterparties": 315,
    "protocolsUsed": 2,
    "protocolNames": ["curve", "morpho"],
    "borrowCount": 5,
    "repayCount": 5,
    "liquidateCount": 0,
    "supplyCount": 3,
    "withdrawCount": 1,
    "numTokens": 49,
    "diversificationScore": 45,
    "concentrationRisk": 0.8,
    "poapCount": 2,
    "nftCount": 0,
    "ethBalance": 1.5,
}


def wallet_input(questionnaire: str = QUESTIONNAIRE, **features: Any) -> dict[str, Any]:
    """The input of a generation; no questionnaire: pass ""."""
    return {
        "address": "0x859e1Dfb430A7156fAEF11947F2FC2a3C34B733A",
        "features": FEATURES | features,
        "questionnaire": questionnaire or "No questionnaire data provided.",
        "has_questionnaire": bool(questionnaire),
        "evm_source": "inline",
        "evm_sha256": "0" * 64,
    }


def prompt(record: dict[str, Any], attempt: int = 1) -> str:
    """The prompt of an attempt; a retry tells of one error."""
    error = {"path": "$.score", "rule": "cross_check", "message": "does not follow"}
    return PROCESS.render_prompt(STEP, record, [error] if attempt > 1 else [], attempt)


def chat(record: dict[str, Any] | None = None, attempt: int = 1, seed: int = 7) -> dict[str, Any]:
    """The body of a call of Ollama's /api/chat."""
    record = record or wallet_input()
    return {
        "model": "simulator",
        "stream": False,
        "messages": [{"role": "user", "content": prompt(record, attempt)}],
        "format": PROCESS.wire_schema(STEP, record),
        "options": {
            "temperature": PROCESS.temperature(attempt),
            "seed": seed,
            "num_predict": 1024,
            "num_ctx": 8192,
        },
    }
