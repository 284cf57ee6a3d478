"""`assay.assign`: values that the system sets itself (SPEC S3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_gate.config_reading import CONFIG, text
from assay_gate.process_findings import Findings
from assay_gate.process_folder import ProcessError


@dataclass(frozen=True, slots=True)
class Assignment:
    """A value that is not the model's to choose: `path` is `value` while the condition holds.

    `field` is a boolean input field, `negated` its `not`; without a field it always holds.
    """

    path: str
    value: Any
    field: str | None = None
    negated: bool = False

    def holds(self, record: Mapping[str, Any]) -> bool:
        return self.field is None or (record.get(self.field) is True) is not self.negated


def parse_assignments(
    ours: Mapping[str, Any], found: Findings
) -> list[tuple[str | None, Assignment]]:
    """`assay.assign` as (step or None, assignment) pairs."""
    given = ours.get("assign") or []
    if not isinstance(given, list):
        found.mistake(CONFIG, "assay.assign", "must be a list of {path, value, when}")
        return []
    parsed = []
    for number, entry in enumerate(given):
        with found.caught():
            parsed.append(_assignment(entry, f"assay.assign[{number}]"))
    return parsed


def _assignment(entry: Any, where: str) -> tuple[str | None, Assignment]:
    if not isinstance(entry, Mapping) or not {"path", "value"} <= set(entry):
        raise ProcessError(CONFIG, where, "needs path and value")
    if unknown := set(entry) - {"path", "value", "when", "step"}:
        raise ProcessError(CONFIG, f"{where}.{sorted(map(str, unknown))[0]}", "no such key")
    path = text(entry, "path", f"{where}.") or ""
    if not path.startswith("$.") or "[" in path:
        raise ProcessError(CONFIG, f"{where}.path", "must name an object member, as in $.a.b")
    words = (text(entry, "when", f"{where}.") or "").split()
    negated = words[:1] == ["not"]
    names = words[1:] if negated else words
    if len(names) > 1 or (negated and not names) or not all(n.isidentifier() for n in names):
        raise ProcessError(
            CONFIG, f"{where}.when", "must be a boolean input field, or `not` and one"
        )
    assignment = Assignment(path, entry["value"], names[0] if names else None, negated)
    return text(entry, "step", f"{where}."), assignment
