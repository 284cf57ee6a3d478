"""Whether the parts of a process fit each other: input schema, steps, result (SPEC S4.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay_gate.config_reading import CONFIG
from assay_gate.process_config import ProcessConfig
from assay_gate.process_definition import Process, Step
from assay_gate.process_endings import SCORE_RESULT
from assay_gate.process_findings import Findings

# What a signed score is made of: fields of the input, and of the last answer.
_SCORE_INPUT = ("address", "evm_source", "evm_sha256")
_SCORE_ANSWER = ("score", "scoreBreakdown", "reasoning", "risk_factors", "strengths")


def check_input_fields(
    config: ProcessConfig, input_schema: Mapping[str, Any], found: Findings
) -> None:
    """The fields that config.yaml names must be required by the input schema, if there is one."""
    if config.input_schema is None:
        return
    properties = input_schema.get("properties", {})
    required = input_schema.get("required", ())
    if config.key is not None and config.key not in required:
        found.mistake(CONFIG, "assay.key", f"the input schema does not require {config.key!r}")
    for step in config.steps:
        for assignment in step.assignments:
            name = assignment.field
            if name and (name not in required or properties.get(name) != {"type": "boolean"}):
                found.mistake(
                    CONFIG, "assay.assign", f"the input schema requires no boolean {name!r}"
                )


def check_protected(steps: Sequence[Step], protected: frozenset[str], found: Findings) -> None:
    """No step may compute or ask for a field that the request brings: an answer could otherwise
    replace the address that is scored."""
    if len(steps) < 2:
        return
    for step in steps:
        made = step.program.names if step.program else (step.output_schema or {}).get("properties")
        for name in sorted(protected & set(made or ())):
            where = f"pipeline.steps.{step.name}"
            found.mistake(
                CONFIG, where, f"{name!r} is a field of the input schema; name the step's another"
            )


def check_result(process: Process, found: Findings) -> None:
    """The empty result must be an answer of the last step; a score must have what is signed."""
    last = [step for step in process.steps if step.kind == "model"][-1]
    empty = "empty_result" in process.exhausted.values()
    if empty and not process.gate(last.name).validates(process.empty_result):
        found.mistake(
            CONFIG, "assay.empty_result", f"does not fit the output schema of step {last.name!r}"
        )
    if process.result != SCORE_RESULT:
        return
    for names, schema, what in (
        (_SCORE_INPUT, process.input_schema, "the input schema"),
        (_SCORE_ANSWER, last.output_schema or {}, f"the output schema of step {last.name!r}"),
    ):
        for name in names:
            if name not in schema.get("required", ()):
                found.mistake(CONFIG, "assay.result", f"a score needs {name!r}, which {what} does "
                              "not require")  # fmt: skip
