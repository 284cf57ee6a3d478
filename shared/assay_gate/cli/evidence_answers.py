"""Answers and their verdicts from what evidence keeps (SPEC S4.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from assay.events import (
    GenerationAccepted,
    GenerationAnswered,
    GenerationRejected,
    WalletScoreValidated,
)
from assay_gate.cli.rejudging import OldVerdict, StoredAnswer
from assay_gate.verdict import problem

Item = dict[str, Any]
Items = Callable[[str], Iterator[Item]]
"""All items of an event type."""

_WHOLE = (None, "stop", "unknown", "eos", "eos_token", "end_turn", "stop_sequence")
_SCORE = ("score", "scoreBreakdown", "reasoning", "risk_factors", "strengths")


def stored_answers(items: Items, process_id: str) -> Iterator[StoredAnswer]:
    """Every recorded answer of a process with its verdict, which names it as its cause.

    Verdicts are held in memory, answers are not.
    """
    verdicts: dict[str, OldVerdict] = {}
    for item in items(GenerationRejected.type):
        _keep(verdicts, item, process_id, _rejected)
    for item in items(GenerationAccepted.type):
        _keep(verdicts, item, process_id, _accepted)
    for item in items(WalletScoreValidated.type):
        _keep(verdicts, item, process_id, _validated)
    seen: set[str] = set()
    for item in items(GenerationAnswered.type):
        payload = _payload(item, process_id)
        if payload is None or item["event_id"] in seen:
            continue
        seen.add(item["event_id"])
        meta = payload["meta"]
        answered = payload.get("outcome") == "answered"
        yield StoredAnswer(
            unit_id=meta.get("unit_id"),
            request_id=meta.get("request_id"),
            step=meta.get("step"),
            input=payload["input"],
            raw=payload.get("raw") if answered else None,
            old=verdicts.get(item["event_id"]),
            cut_off=answered and payload.get("finish_reason") not in _WHOLE,
        )


def _payload(item: Item, process_id: str) -> dict[str, Any] | None:
    """The event, where it is one of this process and not erased."""
    payload = item.get("payload")
    if not isinstance(payload, dict) or not isinstance(payload.get("meta"), dict):
        return None
    if payload["meta"].get("process_id") != process_id or not isinstance(
        payload.get("input", {}), dict
    ):
        return None
    return payload


def _keep(
    verdicts: dict[str, OldVerdict],
    item: Item,
    process_id: str,
    read: Callable[[dict[str, Any]], OldVerdict | None],
) -> None:
    payload = _payload(item, process_id)
    if payload is None:
        return
    verdict = read(payload)
    cause = payload["meta"].get("causation_id")
    if verdict is not None and isinstance(cause, str):
        verdicts.setdefault(cause, verdict)


def _rejected(payload: dict[str, Any]) -> OldVerdict:
    errors = [problem(e["path"], e["rule"], e["message"]) for e in payload["errors"]]
    return OldVerdict(False, payload["failure_stage"], errors)


def _accepted(payload: dict[str, Any]) -> OldVerdict | None:
    """An empty result is no verdict on an answer; its rejection is."""
    if payload.get("fallback") is not None:
        return None
    return OldVerdict(True, output=payload["output"], is_result=payload.get("final", True))


def _validated(payload: dict[str, Any]) -> OldVerdict | None:
    """A fallback is no verdict on an answer; its rejection is."""
    if payload.get("fallback") is not None:
        return None
    return OldVerdict(True, output={name: payload[name] for name in _SCORE})
