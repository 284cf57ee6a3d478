"""What the gate says about one answer (DESIGN §4, SPEC S4.5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict

from assay.errors import AssayError

Stage: TypeAlias = Literal["pipeline_internal", "schema_validation", "validation"]
"""Where an answer failed: not readable, not of the schema's shape, or against a business rule."""

Assignments: TypeAlias = Sequence[tuple[str, Any]]
Amend: TypeAlias = Assignments | Callable[[Any], Assignments]
"""Values set after the schema check and before the rules: (JSON path, new value) pairs, or a
function of the value that returns them (SPEC S3.4)."""

SHOWN_CHARACTERS = 120


class GateError(AssayError):
    """A schema, rule or gate setting is wrong; an answer never raises this."""


class Problem(TypedDict):
    """One reason for a rejection: JSON path, rule name and a message a model can act on."""

    path: str
    rule: str
    message: str


class Repair(TypedDict):
    """One change between the raw text and the value: JSON path, kind, what stood there, what
    stands there now."""

    path: str
    kind: str
    before: Any
    after: Any


@dataclass(slots=True)
class Verdict:
    """The gate's decision; `value` is None unless `accepted`, `stage` is None if it is.

    `warnings` holds broken rules of level `warning`, which reject nothing (SPEC S4.4).
    """

    accepted: bool
    value: Any = None
    stage: Stage | None = None
    errors: list[Problem] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON: accepted, value (accepted answers only), stage, errors, repairs."""
        shape: dict[str, Any] = {"accepted": self.accepted}
        if self.accepted:
            shape["value"] = self.value
        shape |= {"stage": self.stage, "errors": self.errors, "repairs": self.repairs}
        if self.warnings:
            shape["warnings"] = self.warnings
        return shape

    def log_lines(self) -> list[str]:
        """One `[COERCE] path: before → after (kind)` line for each repair (SPEC S4.3)."""
        return [
            f"[COERCE] {r['path']}: {shown(r['before'])} → {shown(r['after'])} ({r['kind']})"
            for r in self.repairs
        ]


def problem(path: str, rule: str, message: str) -> Problem:
    return {"path": path, "rule": rule, "message": message}


def repair(path: str, kind: str, before: Any, after: Any) -> Repair:
    return {"path": path, "kind": kind, "before": clipped(before), "after": clipped(after)}


def clipped(value: Any) -> Any:
    """A value small enough to travel in an event: scalars as they are, the rest as short text."""
    if isinstance(value, str):
        return value if len(value) <= SHOWN_CHARACTERS else value[:SHOWN_CHARACTERS] + "…"
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and abs(value) < 1 << 64:
        return value
    return shown(value)


def shown(value: Any) -> str:
    """A value as short JSON text for messages, never more than SHOWN_CHARACTERS."""
    if isinstance(value, str):
        text = json_text(value[: SHOWN_CHARACTERS + 1])
    elif isinstance(value, dict | list):
        text = _shown_container(value)
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 512:
        text = "a very long integer"
    else:
        text = json_text(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


def _shown_container(value: dict[str, Any] | list[Any]) -> str:
    if isinstance(value, dict):
        names = ", ".join(str(name)[:24] for name in list(value)[:4])
        return f"an object with {len(value)} fields ({names})" if value else "{}"
    if len(value) <= 4 and not any(isinstance(item, dict | list) for item in value):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return f"an array of {len(value)} items"


def json_text(value: Any) -> str:
    """JSON text of a scalar; what JSON cannot say is shown as Python writes it."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)
