"""`assay gate judge`: the gate as a filter over raw answers."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from typing import Any

import typer

from assay_gate.cli.lines import Progress, read_lines, write_line
from assay_gate.gate import Gate
from assay_gate.verdict import GateError, Verdict, problem

app = typer.Typer(no_args_is_help=True, help="Judge raw model answers.")


@app.callback()
def gate() -> None:
    """Judge raw model answers."""


@app.command()
def judge() -> None:
    """Judge JSON lines {"id", "raw", "schema", "rules"?, "context"?} from stdin.

    Writes one line {"id", "accepted", "value"?, "stage", "errors", "repairs"} for each, in order.
    `schema` may be null: any JSON is accepted then. Runs in constant memory.

    Exit codes: 0 every answer was accepted; 1 at least one was not; 2 wrong usage.
    """
    progress = Progress()
    try:
        for line, fault in read_lines(sys.stdin.buffer):
            identity, verdict = _judged(line, fault)
            write_line(sys.stdout.buffer, {"id": identity} | verdict.to_json())
            progress.count(passed=verdict.accepted)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        sys.stderr.close()
        raise typer.Exit(1) from None
    raise typer.Exit(progress.finish())


def _judged(line: str, fault: str | None) -> tuple[Any, Verdict]:
    if fault is not None:
        return None, _unusable("line", fault)
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        return None, _unusable("line", f"the line is no JSON: {error}")
    if not isinstance(request, dict):
        return None, _unusable("line", "the line is no JSON object")
    identity = request.get("id")
    if not isinstance(request.get("raw"), str) or "schema" not in request:
        return identity, _unusable("line", "`raw` (text) and `schema` are needed")
    context = request.get("context") or {}
    if not isinstance(context, dict):
        return identity, _unusable("line", "`context` must be an object")
    try:
        compiled = _gate(json.dumps([request["schema"], request.get("rules")]))
        return identity, compiled.judge(request["raw"], context)
    except (GateError, RecursionError) as error:
        return identity, _unusable("configuration", str(error))


@lru_cache(maxsize=256)
def _gate(configuration: str) -> Gate:
    schema, rules = json.loads(configuration)
    return Gate(schema, rules)


def _unusable(rule: str, message: str) -> Verdict:
    return Verdict(False, stage="pipeline_internal", errors=[problem("$", rule, message)])
