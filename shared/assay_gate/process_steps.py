"""The steps of a process and the 4-point link rule (SPEC S4.9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from assay_gate.config_reading import CONFIG, section, text
from assay_gate.expression_config import parse_program
from assay_gate.expression_steps import ExpressionProgram
from assay_gate.hints import hint
from assay_gate.process_assignments import Assignment
from assay_gate.process_findings import Findings
from assay_gate.process_folder import ProcessError

UNIT_EXPRESSIONS = "processing.expressions"
_SCOPES = ("chunk", "expression", "run")
_Points = tuple[tuple[str, Mapping[str, Any]], ...]


@dataclass(frozen=True, slots=True)
class StepConfig:
    """One step as configured: file names, rules, constants for its template and the raw mapping
    of `pipeline.steps`. Empty `template`: it could not be read."""

    name: str
    kind: Literal["model", "expression"]
    settings: Mapping[str, Any]
    template: str = ""
    schema: str | None = None
    rules: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    assignments: tuple[Assignment, ...] = ()
    program: ExpressionProgram | None = None


def parse_steps(
    config: Mapping[str, Any], assigned: list[tuple[str | None, Assignment]], found: Findings
) -> tuple[StepConfig, ...]:
    """The steps under the 4-point link rule (S4.9); expression steps need their entry only."""
    steps = _unit_expressions(config, found)
    entries: list[Any] = []
    with found.caught():
        given = section(config, "pipeline").get("steps")
        if isinstance(given, list) and given:
            entries = given
        else:
            raise ProcessError(CONFIG, "pipeline.steps", "must be a list of at least one step")
    points = _points(config, entries, found)
    named: list[Any] = []
    for number, entry in enumerate(entries):
        where = f"pipeline.steps[{number}]"
        with found.caught():
            if step := _step(entry, where, steps, points, config, found):
                steps.append(step)
        if isinstance(entry, Mapping):
            _check_order(entry, where, named, found)
            named.append(entry.get("name"))
    models = [step.name for step in steps if step.kind == "model"]
    for number, (step_name, _) in enumerate(assigned):
        if (step_name is None and len(models) != 1) or step_name not in (None, *models):
            found.mistake(
                CONFIG, f"assay.assign[{number}].step", f"must be one of {', '.join(models)}"
            )
    return tuple(
        replace(step, assignments=tuple(a for owner, a in assigned if owner in (None, step.name)))
        if step.kind == "model"
        else step
        for step in steps
    )


def _unit_expressions(config: Mapping[str, Any], found: Findings) -> list[StepConfig]:
    """`processing.expressions`, which seed 4 computes for each unit before its first step."""
    processing = config.get("processing")
    if not isinstance(processing, Mapping) or processing.get("expressions") is None:
        return []
    entry = {"expressions": processing["expressions"]}
    program = parse_program(UNIT_EXPRESSIONS, entry, "processing", found)
    return [StepConfig(UNIT_EXPRESSIONS, "expression", entry, program=program)]


def _points(config: Mapping[str, Any], entries: list[Any], found: Findings) -> _Points:
    """The other three points of the link rule; a section that is missing is one mistake."""
    asks = any(
        isinstance(entry, Mapping) and entry.get("scope") in (None, "chunk") for entry in entries
    )
    points: list[tuple[str, Mapping[str, Any]]] = []
    for outer, inner in (("prompts", "templates"), ("schemas", "files"), ("validation", "")):
        where = f"{outer}.{inner}" if inner else outer
        if asks:
            with found.caught():
                given = section(config, outer)
                given = section(given, inner, None, f"{outer}.") if inner else given
                points.append((where, given))
    return tuple(points)


def _step(
    entry: Any, where: str, earlier: list[StepConfig], points: _Points,
    config: Mapping[str, Any], found: Findings,
) -> StepConfig | None:  # fmt: skip
    if not isinstance(entry, Mapping):
        raise ProcessError(CONFIG, where, "must be a mapping with a name")
    name = text(entry, "name", f"{where}.")
    names = [step.name for step in earlier]
    if name is None or name in names:
        raise ProcessError(CONFIG, f"{where}.name", "missing or used by an earlier step")
    scope = entry.get("scope")
    if scope == "expression":
        program = parse_program(name, entry, where, found)
        return StepConfig(name, "expression", entry, program=program)
    if scope == "run":
        found.warning(CONFIG, where, "ignored: scope run works on a whole run, not on a request")
        return None
    if scope == "fan_out":
        raise ProcessError(CONFIG, f"{where}.scope", "fan_out makes several units of one, and a "
                           "request has exactly one result")  # fmt: skip
    if scope not in (None, "chunk"):
        raise ProcessError(
            CONFIG, f"{where}.scope", f"must be one of {', '.join(_SCOPES)}" + hint(scope, _SCOPES)
        )
    if "expressions" in entry:
        found.mistake(CONFIG, f"{where}.scope", "missing: a step with expressions needs "
                      "scope: expression")  # fmt: skip
    return _linked(name, entry, where, points, config, found)


def _check_order(entry: Mapping[str, Any], where: str, earlier: list[Any], found: Findings) -> None:
    wanted = entry.get("depends_on")
    for name in wanted if isinstance(wanted, list) else [wanted]:
        if name is not None and name not in earlier:
            message = f"{name!r} is no earlier step; steps run in the order of the list"
            found.mistake(CONFIG, f"{where}.depends_on", message + hint(name, earlier))


def _linked(
    name: str, entry: Mapping[str, Any], where: str, points: _Points,
    config: Mapping[str, Any], found: Findings,
) -> StepConfig:  # fmt: skip
    """A model step with its template, its schema (null: none, S5.7) and its rules."""
    linked: dict[str, Any] = {}
    for point, entries in points:
        with found.caught():
            if name not in entries:
                raise ProcessError(CONFIG, f"{point}.{name}", "missing" + hint(name, entries))
            if point == "validation":
                linked[point] = section(entries, name, {}, "validation.")
                continue
            file = text(entries, name, f"{point}.")
            if file is None and point == "prompts.templates":
                raise ProcessError(CONFIG, f"{point}.{name}", "must name a file")
            linked[point] = file and _placed(config, point, file)
    context: Mapping[str, Any] = {}
    with found.caught():
        context = section(entry, "context", {}, f"{where}.")
    return StepConfig(
        name, "model", entry, linked.get("prompts.templates") or "", linked.get("schemas.files"),
        linked.get("validation", {}), context,
    )  # fmt: skip


def _placed(config: Mapping[str, Any], point: str, file: str) -> str:
    """A file's name relative to the process folder; `.` is the folder itself."""
    outer, key, usual = {
        "prompts.templates": ("prompts", "template_dir", "templates"),
        "schemas.files": ("schemas", "schema_dir", "schemas"),
    }[point]
    folder = text(config[outer], key, f"{outer}.")
    folder = (usual if folder is None else folder).strip("/").removeprefix("./")
    return file if folder in ("", ".") else f"{folder}/{file}"
