"""One record per model attempt, joined from the events of a request (SPEC S5.5). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.envelope import text_headers
from assay.events import (
    GenerationAccepted,
    GenerationAnswered,
    GenerationRejected,
    WalletScoreValidated,
)
from services.evidence.domain.entries import Row

ANSWERS = GenerationAnswered.type
VERDICTS = (GenerationRejected.type, GenerationAccepted.type, WalletScoreValidated.type)
# Stands beside the event, whose value is the same however long the call took.
DURATION_HEADER = "assay_duration_ms"

_META = (
    "request_id", "tenant_id", "wallet", "unit_id", "process_id", "process_version",
    "process_hash", "step", "attempt",
)  # fmt: skip
_ANSWER = (
    "outcome", "finish_reason", "error", "provider", "model", "model_digest", "temperature",
    "seed", "served_from", "prompt_sha256", "schema_sha256",
)  # fmt: skip

Cause = tuple[str, str | None]
"""(event id of the answer, step): what a verdict is on."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of an answer."""

    event_id: str
    accepted: bool
    stage: str | None = None
    errors: list[Any] = field(default_factory=list)
    terminal: bool | None = None


def verdicts_of(rows: Iterable[Row]) -> dict[Cause, Judged]:
    """The verdict on each answer; a fallback is no verdict, its rejection is."""
    found: dict[Cause, Judged] = {}
    for row in rows:
        event = read_event(row)
        if event is None:
            continue
        meta = event["meta"]
        cause = (str(meta.get("causation_id")), meta.get("step"))
        if row.entry.topic == GenerationRejected.type:
            errors = event.get("errors")
            judged = Judged(
                row.entry.event_id,
                accepted=False,
                stage=event.get("failure_stage"),
                errors=errors if isinstance(errors, list) else [],
                terminal=event.get("terminal"),
            )
        elif event.get("fallback") is not None:
            continue
        else:
            judged = Judged(row.entry.event_id, accepted=True)
        found.setdefault(cause, judged)
    return found


def attempt_record(row: Row, verdicts: Mapping[Cause, Judged]) -> dict[str, Any]:
    """The record of one answer. What is not known is null; durations are in milliseconds.

    An erased or unreadable answer has a record without the event's fields.
    """
    entry = row.entry
    record: dict[str, Any] = {
        "event_id": entry.event_id,
        "request_id": entry.request_id,
        "answered_at_ms": entry.timestamp_ms,
        "leaf_hash": row.leaf_hash.hex(),
    }
    event = read_event(row)
    if event is None:
        return record if row.erased_by else {**record, "unreadable": True}
    meta = event["meta"]
    judged = verdicts.get((entry.event_id, meta.get("step")))
    usage = event.get("usage")
    record |= {name: meta.get(name) for name in _META}
    record |= {name: event.get(name) for name in _ANSWER}
    return record | {
        "shadow": bool(meta.get("shadow")),
        "unsealed": bool(meta.get("unsealed")),
        "prompt": event.get("prompt"),
        "raw_answer": event.get("raw"),
        "parse_success": _parsed(event, judged),
        "validation_success": judged.accepted if judged else None,
        "failure_stage": judged.stage if judged else None,
        "errors": judged.errors if judged else [],
        "terminal": judged.terminal if judged else None,
        "verdict_event_id": judged.event_id if judged else None,
        "tokens": usage if isinstance(usage, dict) else {},
        "duration_ms": _duration(row),
    }


def _parsed(event: Mapping[str, Any], judged: Judged | None) -> bool | None:
    """Whether there was an answer and JSON was found in it (SPEC S4.2); unknown until judged."""
    if event.get("outcome") != "answered":
        return False
    if judged is None:
        return None
    return judged.accepted or judged.stage != "pipeline_internal"


def _duration(row: Row) -> float | None:
    try:
        milliseconds = float(text_headers(row.entry.headers)[DURATION_HEADER])
    except (KeyError, ValueError):
        return None
    return milliseconds if 0 <= milliseconds < float("inf") else None


def read_event(row: Row) -> dict[str, Any] | None:
    """The event of a row, where it is one and is not erased."""
    try:
        event = json.loads(row.entry.value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("meta"), dict):
        return None
    return event
