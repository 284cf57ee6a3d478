"""The chain of a process's steps: what follows an accepted answer (SPEC S4.12). Pure.

A step's fields accumulate into the next step's input, expression steps on the way are computed.
An answer that is no object accumulates under its step's name. Fields that the process's own input
schema names stay as the request brought them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from assay.events import Meta
from assay_gate.config_reading import CONFIG
from assay_gate.expression_steps import ExpressionError
from assay_gate.process_definition import Process, Step
from assay_gate.process_folder import ProcessError
from assay_gate.verdict import Problem, problem

EXPRESSION_FAILED = "expression_failed"
"""The rule of a failed expression step's problem, and the code of an answered event without a
question: a repeat would compute the same, so it ends the request as `pipeline_internal`."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A model is asked next: the step, its accumulated input, and the request's meta."""

    step: str
    input: dict[str, Any]
    meta: Meta


@dataclass(frozen=True, slots=True)
class Finished:
    """No step is left. `record` is everything accumulated; `output` is the process's result: the
    answer itself where there is one step, else the record without the input schema's fields."""

    record: dict[str, Any]
    output: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """An expression step failed: a terminal rejection as `pipeline_internal`."""

    step: str
    input: dict[str, Any]
    errors: list[Problem]


NextStep: TypeAlias = Ask | Finished | Failed


def request_meta(process: Process, meta: Meta) -> Meta:
    """The meta of a request to `process` for what `meta` accepted; the scorer finds the step.

    For a shadow it carries the mark that keeps every score of it from the signer.
    """
    return meta.model_copy(
        update={
            "process_id": process.id,
            "process_version": process.version,
            "process_hash": process.hash,
            "step": None,
            "unit_id": meta.unit_id or meta.request_id,
            "attempt": 1,
            "shadow": process.shadow is not None,
        }
    )


def first_request(
    process: Process, meta: Meta, record: Mapping[str, Any], unit_id: str, step: str | None = None
) -> Ask | Failed:
    """Where a request begins: at the step it names, or at the first; expression steps before the
    first question are computed. ProcessError for a step that is unknown or leads to no question,
    GateError for an input that is no JSON and without a worker."""
    names = [each.name for each in process.steps]
    start = 0 if step is None else names.index(process.step(step).name)
    reached = _advance(process, meta, start, dict(record), unit_id)
    if isinstance(reached, Finished):
        raise ProcessError(CONFIG, "pipeline.steps", f"no step from {step!r} on asks a model")
    return reached


def next_request(
    process: Process, meta: Meta, record: Mapping[str, Any], step: str, output: Any, unit_id: str
) -> NextStep:
    """What follows `output`, the accepted answer of `step` to the input `record`.

    `meta` is the answered event's; the next request's differs in step and attempt only. Equal
    arguments give equal results, `random` in expressions included.
    """
    names = [each.name for each in process.steps]
    grown = accumulated(process, process.step(step), record, output)
    reached = _advance(process, meta, names.index(step) + 1, grown, unit_id)
    if isinstance(reached, Finished) and len(process.steps) == 1:
        return Finished(reached.record, output)
    return reached


def computes_after(process: Process, step: str) -> bool:
    """Whether expression steps follow at once: then `next_request` may take their time limits."""
    names = [each.name for each in process.steps]
    following = process.steps[names.index(step) + 1 :]
    return bool(following) and following[0].program is not None


def accumulated(
    process: Process, step: Step, record: Mapping[str, Any], output: Any
) -> dict[str, Any]:
    """The record with a step's fields; the request's own fields are not replaced."""
    fields = output if isinstance(output, Mapping) else {step.name: output}
    kept = {name: record[name] for name in process.protected if name in record}
    return {**record, **fields, **kept}


def _advance(
    process: Process, meta: Meta, start: int, record: dict[str, Any], unit_id: str
) -> NextStep:
    for step in process.steps[start:]:
        if step.program is None:
            asked = {"step": step.name, "attempt": 1, "unit_id": unit_id}
            return Ask(step.name, record, meta.model_copy(update=asked))
        try:
            fields = step.program.run({**record, "unit_id": unit_id}, unit_id, process.gate_config)
        except ExpressionError as error:
            reason = f"{error.kind}: {error.reason}"
            where = f"$.{error.expression}"
            found = problem(where, EXPRESSION_FAILED, f"step {step.name!r}: {reason}")
            return Failed(step.name, record, [found])
        record = accumulated(process, step, record, fields)
    output = {name: value for name, value in record.items() if name not in process.protected}
    return Finished(record, output)
