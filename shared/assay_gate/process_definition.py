"""A loaded process: prompts, wire schemas, gates and assigned values of its steps; no IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jinja2
import jsonschema_rs

from assay_gate.config import GateConfig
from assay_gate.config_reading import CONFIG
from assay_gate.expression_steps import ExpressionProgram
from assay_gate.process_assignments import Assignment
from assay_gate.process_attempts import Attempts
from assay_gate.process_cache import Caching
from assay_gate.process_config import Shadow
from assay_gate.process_endings import Policy
from assay_gate.process_folder import ProcessError
from assay_gate.prompt import PromptError, render, schema_text
from assay_gate.schema_refs import with_const
from assay_gate.verdict import Problem, Verdict, problem
from assay_gate.wire_schema import derive_wire_schema

if TYPE_CHECKING:
    from assay_gate import Gate

_MAX_INPUT_PROBLEMS = 20
_MAX_MESSAGE = 300


@dataclass(frozen=True, eq=False)
class Step:
    """One step. `output_schema` is None where the answer only has to be JSON (SPEC S5.7).

    `context` holds constants for its template, `program` the expressions of an expression step.
    """

    name: str
    kind: Literal["model", "expression"]
    output_schema: dict[str, Any] | None
    rules: Mapping[str, Any]
    assignments: tuple[Assignment, ...]
    settings: Mapping[str, Any]
    context: Mapping[str, Any]
    attempts: Attempts
    program: ExpressionProgram | None
    template: jinja2.Template | None = field(repr=False)


@dataclass(frozen=True, eq=False)
class Process:
    """A loaded process. `hash` covers every file of the folder, so it names what judged an answer.

    `key` is the input field that is the partition key (None: the request id), `exhausted` says
    per reason what follows the last attempt, `protected` holds the input fields that no step may
    replace (those of `assay.input_schema`). A `shadow` is recorded and compared, never signed.
    `caching` None: every request is asked for itself.
    """

    id: str
    version: str
    hash: str
    folder: Path
    input_schema: Mapping[str, Any]
    key: str | None
    steps: tuple[Step, ...]
    protected: frozenset[str]
    usual_attempts: Attempts
    exhausted: Mapping[str, Policy]
    empty_result: Any
    result: str
    shadow: Shadow | None
    caching: Caching | None
    api: Mapping[str, Any]
    processing: Mapping[str, Any]
    _fallback: Mapping[str, Any] = field(repr=False)
    _fixed: Mapping[str, Any] = field(repr=False)
    _gate_config: GateConfig = field(repr=False)
    _input: jsonschema_rs.Draft202012Validator = field(repr=False)
    _wires: dict[tuple[str, tuple[bool, ...]], dict[str, Any]] = field(
        repr=False, default_factory=dict
    )
    _shown: dict[tuple[str, tuple[bool, ...]], str | None] = field(repr=False, default_factory=dict)
    _gates: dict[str, Gate] = field(repr=False, default_factory=dict)

    @property
    def temperatures(self) -> tuple[float, ...]:
        """One per attempt, of steps without settings of their own."""
        return self.usual_attempts.temperatures

    @property
    def max_tokens(self) -> int | None:
        """The longest answer of such steps, in tokens; None: the scorer's setting."""
        return self.usual_attempts.max_tokens

    @property
    def attempts(self) -> int:
        """How often a model is asked at such a step before `exhausted` decides."""
        return len(self.temperatures)

    @property
    def gate_config(self) -> GateConfig:
        """Limits of the gate, which bind expression steps too."""
        return self._gate_config

    def attempts_of(self, step: str) -> int:
        """How often a model is asked at this step."""
        return len(self.step(step).attempts.temperatures)

    @property
    def first_model_step(self) -> str:
        """Where a request without a step begins."""
        return next(step.name for step in self.steps if step.kind == "model")

    def step(self, name: str) -> Step:
        """The step of that name; ProcessError if there is none."""
        for step in self.steps:
            if step.name == name:
                return step
        raise ProcessError(CONFIG, "pipeline.steps", f"process {self.id!r} has no step {name!r}")

    def temperature(self, attempt: int, step: str | None = None) -> float:
        """The temperature of an attempt, counted from 1; later ones repeat the last (S1.4)."""
        plan = self.temperatures if step is None else self.step(step).attempts.temperatures
        return plan[min(max(attempt, 1), len(plan)) - 1]

    def input_problems(self, record: Any, step: str | None = None) -> list[Problem]:
        """Why `record` is no input of this process; empty if it is one (S5.1).

        At a `step` that follows others the record holds their fields too, so only the fields
        that the input schema names are looked at.
        """
        named = self.input_schema.get("properties")
        later = step is not None and self.steps[0].name != step
        if later and isinstance(record, Mapping) and isinstance(named, Mapping):
            record = {name: value for name, value in record.items() if name in named}
        found = []
        for error in self._input.iter_errors(record):
            path = "$" + "".join(
                f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path
            )
            rule = str(error.schema_path[-1]) if error.schema_path else "schema"
            found.append(problem(path[:_MAX_MESSAGE], rule, error.message[:_MAX_MESSAGE]))
            if len(found) == _MAX_INPUT_PROBLEMS:
                break
        return found

    def assignments(self, step: str, record: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """(path, value) pairs the system sets itself for this input (S3.4)."""
        return [(a.path, a.value) for a in self.step(step).assignments if a.holds(record)]

    def wire_schema(self, step: str, record: Mapping[str, Any]) -> dict[str, Any] | None:
        """The grammar for the model, assigned values pinned with const; None without a schema."""
        found = self.step(step)
        if found.output_schema is None:
            return None
        held = tuple(a.holds(record) for a in found.assignments)
        if (step, held) not in self._wires:
            pins = self.assignments(step, record)
            self._wires[step, held] = derive_wire_schema(found.output_schema, pins)
        return self._wires[step, held]

    def shown_schema(self, step: str, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The full output schema as the prompt prints it, assigned values pinned."""
        schema = self.step(step).output_schema
        if schema is None:
            return None
        for path, value in self.assignments(step, record):
            schema = with_const(schema, path, value)
        return schema

    def _shown_text(self, step: str, record: Mapping[str, Any]) -> str | None:
        """The shown schema as text, written once for each set of assigned values."""
        held = tuple(a.holds(record) for a in self.step(step).assignments)
        if (step, held) not in self._shown:
            schema = self.shown_schema(step, record)
            self._shown[step, held] = None if schema is None else schema_text(schema)
        return self._shown[step, held]

    def render_prompt(
        self,
        step: str,
        record: Mapping[str, Any],
        feedback: Sequence[Problem] = (),
        attempt: int = 1,
        unit_id: str = "",
    ) -> str:
        """The prompt of an attempt; from the second on with seed 5's stricter block (S5.2).

        The template sees the record, the configured constants (which no field can replace) and
        `unit_id`. `feedback` holds the errors of the attempt before. PromptError if the template
        needs a field that is nowhere.
        """
        found = self.step(step)
        if found.template is None:
            raise PromptError(f"{self.id}: step {step!r} asks no model")
        schema = self._shown_text(step, record)
        seen = {**self._fallback, **record, **self._fixed, **found.context, "unit_id": unit_id}
        return render(found.template, seen, schema, stricter=attempt > 1, feedback=feedback)

    def gate(self, step: str) -> Gate:
        """The gate that judges this step's answers; compiled once."""
        if step not in self._gates:
            from assay_gate import Gate

            found = self.step(step)
            self._gates[step] = Gate(
                found.output_schema, found.rules or None, config=self._gate_config
            )
        return self._gates[step]

    def judge(self, step: str, raw: str, record: Mapping[str, Any], unit_id: str) -> Verdict:
        """The verdict on an answer of this step to this input: assigned values set, rules seeing
        the input and the unit's id (SPEC S3.4, S4.4)."""
        return self.gate(step).judge(
            raw,
            context={**record, "unit_id": unit_id},
            amend=self.assignments(step, record),
            unit_id=unit_id,
        )
