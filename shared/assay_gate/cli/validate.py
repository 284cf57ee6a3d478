"""`assay validate schema` and `assay validate rules`: seed 4's two phases as pipe filters."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar

import typer

from assay_gate.bounded_yaml import YamlError, load_yaml
from assay_gate.cli.lines import Progress, read_lines, write_line
from assay_gate.config import GateConfig
from assay_gate.gate import Gate
from assay_gate.rules import Rules
from assay_gate.verdict import GateError, Problem, Stage, Verdict, problem

app = typer.Typer(
    no_args_is_help=True,
    help="Filter units (JSON lines): valid ones to stdout, failure records to stderr.",
)

Built = TypeVar("Built")
Unit = dict[str, Any]
Judge = Callable[[Unit], tuple[Verdict, Unit]]
"""The verdict on a unit, and the unit as it goes on if it is accepted."""

LogOption = Annotated[
    Path | None, typer.Option("--log", help="Append a line for each coercion and each warning.")
]
_LINE = GateConfig(reserved_fields=(), max_characters=8_000_000)


@app.command("schema")
def validate_schema(
    schema: Annotated[
        Path, typer.Option("--schema", exists=True, dir_okay=False, help="JSON Schema file.")
    ],
    log: LogOption = None,
) -> None:
    """Phase 1: coerce each unit and check it against a JSON Schema.

    Reads one JSON object with a `unit_id` per line. Writes valid units to stdout with every field
    kept, and for each other line a failure record {unit_id, failure_stage, input, raw_response,
    errors, retry_count} to stderr. `unit_id` and `_metadata` are not shown to the schema. Runs
    in constant memory.

    Exit codes: 0 all units passed; 1 at least one failed; 2 the schema cannot be used.
    """
    gate = _usable(lambda: Gate(json.loads(schema.read_bytes()), config=_LINE))
    reserved = GateConfig().reserved_fields

    def judge(unit: Unit) -> tuple[Verdict, Unit]:
        kept = {name: unit[name] for name in unit if name in reserved}
        verdict = gate.judge_value({name: unit[name] for name in unit if name not in reserved})
        return verdict, kept | verdict.value if isinstance(verdict.value, dict) else kept

    raise typer.Exit(_filter(judge, log))


@app.command("rules")
def validate_rules(
    config: Annotated[
        Path, typer.Option("--config", exists=True, dir_okay=False, help="YAML configuration.")
    ],
    step: Annotated[str, typer.Option("--step", help="The step: rules stand in validation.STEP.")],
    log: LogOption = None,
) -> None:
    """Phase 2: check each unit against the business rules of a step.

    Reads one JSON object with a `unit_id` and all accumulated fields per line. Writes valid units
    to stdout unchanged, and for each other line a failure record {unit_id, failure_stage, input,
    raw_response, errors, retry_count} to stderr. Runs in constant memory.

    Exit codes: 0 all units passed; 1 at least one failed; 2 the rules cannot be used.
    """
    rules = _usable(lambda: Rules(_step_rules(config, step)))

    def judge(unit: Unit) -> tuple[Verdict, Unit]:
        errors, warnings = rules.check(unit, str(unit["unit_id"]))
        stage: Stage | None = "validation" if errors else None
        return Verdict(not errors, unit, stage, errors, warnings=warnings), unit

    raise typer.Exit(_filter(judge, log))


def _step_rules(config: Path, step: str) -> Any:
    try:
        document = load_yaml(config.read_text(encoding="utf-8"))
    except YamlError as error:
        raise GateError(f"{config}: {error}") from None
    section = document.get("validation") if isinstance(document, dict) else None
    if not isinstance(section, dict) or step not in section:
        raise GateError(f"{config}: there is no validation.{step}")
    return section[step] or {}


def _usable(build: Callable[[], Built]) -> Built:
    try:
        return build()
    except (GateError, ValueError) as error:
        print(f"assay validate: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


def _filter(judge: Judge, log: Path | None) -> int:
    progress = Progress()
    reader = Gate(None, config=_LINE)
    valid, failed = sys.stdout.buffer, sys.stderr.buffer
    opened = log.open("a", encoding="utf-8") if log is not None else nullcontext(None)
    try:
        with opened as journal:
            for line, fault in read_lines(sys.stdin.buffer):
                unit, verdict = _read_unit(reader, line, fault)
                passed = unit
                if verdict.accepted:
                    verdict, passed = judge(unit)
                if verdict.accepted:
                    write_line(valid, passed)
                else:
                    write_line(failed, _failure(unit, line, verdict))
                    failed.flush()
                if journal is not None:
                    _note(journal, unit, verdict)
                progress.count(passed=verdict.accepted)
            valid.flush()
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return progress.finish()


def _read_unit(reader: Gate, line: str, fault: str | None) -> tuple[Unit, Verdict]:
    """The unit a line holds; a verdict that is not accepted says why it holds none."""
    if fault is not None:
        return {}, _rejected("pipeline_internal", "$", "line", fault)
    verdict = reader.judge(line)
    unit = verdict.value
    if not verdict.accepted:
        return {}, verdict
    if not isinstance(unit, dict):
        return {}, _rejected("schema_validation", "$", "type", "a unit must be an object")
    if not isinstance(unit.get("unit_id"), str | int):
        message = "a unit needs a unit_id, a text or an integer"
        return unit, _rejected("schema_validation", "$.unit_id", "required", message)
    return unit, verdict


def _rejected(stage: Stage, path: str, rule: str, message: str) -> Verdict:
    errors: list[Problem] = [problem(path, rule, message)]
    return Verdict(False, stage=stage, errors=errors)


def _failure(unit: Unit, line: str, verdict: Verdict) -> dict[str, Any]:
    """The failure record of a unit (SPEC S4.5)."""
    metadata = unit.get("_metadata")
    count = metadata.get("retry_count") if isinstance(metadata, dict) else None
    return {
        "unit_id": unit.get("unit_id"),
        "failure_stage": verdict.stage,
        "input": unit,
        "raw_response": line,
        "errors": verdict.errors,
        "retry_count": count if isinstance(count, int) else 0,
    }


def _note(journal: IO[str], unit: Unit, verdict: Verdict) -> None:
    name = unit.get("unit_id")
    for line in verdict.log_lines():
        journal.write(f"{name} {line}\n")
    for warning in verdict.warnings:
        journal.write(f"{name} [WARN] {warning['rule']}: {warning['message']}\n")
