"""The steps of a process: the 4-point link rule (SPEC S4.9) and the assigned values (S3.4)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from assay_gate.config_reading import CONFIG, section, text
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


@dataclass(frozen=True, slots=True)
class StepConfig:
    """One step as configured: file names, rules and the raw mapping of `pipeline.steps`."""

    name: str
    kind: Literal["model", "expression"]
    settings: Mapping[str, Any]
    template: str = ""
    schema: str | None = None
    rules: Mapping[str, Any] = field(default_factory=dict)
    assignments: tuple[Assignment, ...] = ()


def parse_assignments(ours: Mapping[str, Any]) -> list[tuple[str | None, Assignment]]:
    """`assay.assign` as (step or None, assignment) pairs."""
    given = ours.get("assign") or []
    if not isinstance(given, list):
        raise ProcessError(CONFIG, "assay.assign", "must be a list of {path, value, when}")
    found = []
    for number, entry in enumerate(given):
        where = f"assay.assign[{number}]"
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
        found.append((text(entry, "step", f"{where}."), assignment))
    return found


def parse_steps(
    config: Mapping[str, Any], assigned: list[tuple[str | None, Assignment]]
) -> tuple[StepConfig, ...]:
    """The steps under the 4-point link rule (S4.9); expression steps need their entry only."""
    entries = section(config, "pipeline").get("steps")
    if not isinstance(entries, list) or not entries:
        raise ProcessError(CONFIG, "pipeline.steps", "must be a list of at least one step")
    steps: list[StepConfig] = []
    for number, entry in enumerate(entries):
        where = f"pipeline.steps[{number}]"
        if not isinstance(entry, Mapping):
            raise ProcessError(CONFIG, where, "must be a mapping with a name")
        name = text(entry, "name", f"{where}.")
        if name is None or name in {step.name for step in steps}:
            raise ProcessError(CONFIG, f"{where}.name", "missing or used by an earlier step")
        if entry.get("scope") == "expression":
            steps.append(StepConfig(name, "expression", entry))
            continue
        steps.append(_linked(config, name, entry))
    models = [step.name for step in steps if step.kind == "model"]
    for number, (step_name, _) in enumerate(assigned):
        if (step_name is None and len(models) != 1) or step_name not in (None, *models):
            raise ProcessError(
                CONFIG, f"assay.assign[{number}].step", f"must be one of {', '.join(models)}"
            )
    return tuple(
        replace(step, assignments=tuple(a for owner, a in assigned if owner in (None, step.name)))
        if step.kind == "model"
        else step
        for step in steps
    )


def _linked(config: Mapping[str, Any], name: str, entry: Mapping[str, Any]) -> StepConfig:
    """The other three points of a model step: template, schema (null: none, S5.7) and rules."""
    prompts = section(config, "prompts")
    schemas = section(config, "schemas")
    templates = section(prompts, "templates", None, "prompts.")
    files = section(schemas, "files", None, "schemas.")
    rules = section(config, "validation")
    for points, where in (
        (templates, "prompts.templates"),
        (files, "schemas.files"),
        (rules, "validation"),
    ):
        if name not in points:
            close = difflib.get_close_matches(name, [str(k) for k in points], n=1)
            hint = f"; is {close[0]!r} misspelt?" if close else ""
            raise ProcessError(CONFIG, f"{where}.{name}", "missing" + hint)
    template = text(templates, name, "prompts.templates.")
    if template is None:
        raise ProcessError(CONFIG, f"prompts.templates.{name}", "must name a file")
    schema = text(files, name, "schemas.files.")
    return StepConfig(
        name,
        "model",
        entry,
        _placed(text(prompts, "template_dir", "prompts."), "templates", template),
        schema and _placed(text(schemas, "schema_dir", "schemas."), "schemas", schema),
        section(rules, name, {}, "validation."),
    )


def _placed(folder: str | None, usual: str, file: str) -> str:
    """A file's name relative to the process folder; `.` is the folder itself."""
    folder = (usual if folder is None else folder).strip("/").removeprefix("./")
    return file if folder in ("", ".") else f"{folder}/{file}"
