"""Process definitions: a folder that says what a model is asked and what its answer must be.

DESIGN §4: config.yaml in seed 4's shape, prompt templates, input and output schema, rules.
Everything is read and checked once; a loaded process does no IO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jinja2
import jsonschema_rs

from assay_gate.config import GateConfig
from assay_gate.config_reading import CONFIG
from assay_gate.process_config import Policy, ProcessConfig, parse_config
from assay_gate.process_folder import Folder, ProcessError, read_folder
from assay_gate.process_steps import Assignment, StepConfig
from assay_gate.prompt import PromptError, compile_templates, render
from assay_gate.rules.shape import rule_problems
from assay_gate.schema_refs import SchemaRefError, check_refs, with_const
from assay_gate.verdict import GateError, Problem, problem
from assay_gate.wire_merge import WireSchemaError
from assay_gate.wire_schema import derive_wire_schema

if TYPE_CHECKING:
    from assay_gate import Gate

__all__ = [
    "Assignment",
    "Policy",
    "Process",
    "ProcessError",
    "PromptError",
    "Step",
    "load_process",
    "load_processes",
]

_MAX_INPUT_PROBLEMS = 20
_MAX_MESSAGE = 300


@dataclass(frozen=True, eq=False)
class Step:
    """One step. `output_schema` is None where the answer only has to be JSON (SPEC S5.7)."""

    name: str
    kind: Literal["model", "expression"]
    output_schema: dict[str, Any] | None
    rules: Mapping[str, Any]
    assignments: tuple[Assignment, ...]
    settings: Mapping[str, Any]
    template: jinja2.Template | None = field(repr=False)


@dataclass(frozen=True, eq=False)
class Process:
    """A loaded process. `hash` covers every file of the folder, so it names what judged an answer.

    `key` is the input field that is the partition key (None: the request id), `temperatures` has
    one entry per attempt, `exhausted` says per reason what follows the last attempt.
    """

    id: str
    version: str
    hash: str
    folder: Path
    input_schema: Mapping[str, Any]
    key: str | None
    steps: tuple[Step, ...]
    temperatures: tuple[float, ...]
    max_tokens: int | None
    exhausted: Mapping[str, Policy]
    result: str
    api: Mapping[str, Any]
    processing: Mapping[str, Any]
    _gate_config: GateConfig = field(repr=False)
    _input: jsonschema_rs.Draft202012Validator = field(repr=False)
    _wires: dict[tuple[str, tuple[bool, ...]], dict[str, Any]] = field(
        repr=False, default_factory=dict
    )
    _gates: dict[str, Gate] = field(repr=False, default_factory=dict)

    @property
    def attempts(self) -> int:
        """How often a model is asked before `exhausted` decides."""
        return len(self.temperatures)

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

    def temperature(self, attempt: int) -> float:
        """The temperature of an attempt, counted from 1; later ones repeat the last (S1.4)."""
        return self.temperatures[min(max(attempt, 1), self.attempts) - 1]

    def input_problems(self, record: Any) -> list[Problem]:
        """Why `record` is no input of this process; empty if it is one (S5.1)."""
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

    def render_prompt(
        self,
        step: str,
        record: Mapping[str, Any],
        feedback: Sequence[Problem] = (),
        attempt: int = 1,
    ) -> str:
        """The prompt of an attempt; from the second on with seed 5's stricter block (S5.2).

        `feedback` holds the errors of the attempt before. PromptError if the template needs a
        field that `record` lacks.
        """
        found = self.step(step)
        if found.template is None:
            raise PromptError(f"{self.id}: step {step!r} asks no model")
        schema = self.shown_schema(step, record)
        return render(found.template, record, schema, stricter=attempt > 1, feedback=feedback)

    def gate(self, step: str) -> Gate:
        """The gate that judges this step's answers; compiled once."""
        if step not in self._gates:
            from assay_gate import Gate

            found = self.step(step)
            self._gates[step] = Gate(
                found.output_schema, found.rules or None, config=self._gate_config
            )
        return self._gates[step]


def load_process(folder: Path | str) -> Process:
    """The process in a folder; ProcessError names the file and key of the first mistake."""
    files = read_folder(Path(folder))
    if CONFIG not in files.files:
        raise ProcessError(str(folder), "", f"there is no {CONFIG}")
    config = parse_config(files.yaml(CONFIG))
    input_schema = _schema(files, config.input_schema, "assay.input_schema") or {"type": "object"}
    templates = _templates(files, config)
    steps = tuple(_step(files, step, templates) for step in config.steps)
    _check_input_fields(config, input_schema)
    if not any(step.kind == "model" for step in steps):
        raise ProcessError(CONFIG, "pipeline.steps", "no step asks a model")
    return Process(
        id=config.id or files.path.resolve().name,
        version=config.version or f"sha256-{files.hash[:12]}",
        hash=files.hash,
        folder=files.path,
        input_schema=input_schema,
        key=config.key,
        steps=steps,
        temperatures=config.temperatures,
        max_tokens=config.max_tokens,
        exhausted=config.exhausted,
        result=config.result,
        api=config.api,
        processing=config.processing,
        _gate_config=_gate_config(config),
        _input=jsonschema_rs.Draft202012Validator(input_schema),
    )


def load_processes(root: Path | str) -> dict[str, Process]:
    """Every process under `root`, one folder each, by id; two with one id are a ProcessError."""
    processes: dict[str, Process] = {}
    for folder in sorted(Path(root).iterdir()):
        if not (folder / CONFIG).is_file():
            continue
        process = load_process(folder)
        if process.id in processes:
            first = processes[process.id].folder.name
            raise ProcessError(
                f"{folder.name}/{CONFIG}", "assay.id", f"{process.id!r} is taken by {first}"
            )
        processes[process.id] = process
    return processes


def _schema(files: Folder, name: str | None, key: str) -> dict[str, Any] | None:
    if name is None:
        return None
    schema = files.json(name, key)
    try:
        jsonschema_rs.meta.validate({"$schema": _DIALECT, **schema})
        check_refs(schema)
        jsonschema_rs.Draft202012Validator(schema)
    except SchemaRefError as error:
        raise ProcessError(name, "", str(error)) from None
    except (jsonschema_rs.ValidationError, ValueError) as error:
        reason = getattr(error, "message", str(error))
        raise ProcessError(name, "", f"is no JSON Schema (2020-12): {reason[:300]}") from None
    return schema


_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _templates(files: Folder, config: ProcessConfig) -> Mapping[str, jinja2.Template]:
    """Every text file beside the named templates is open to `include`, by its relative name."""
    named = {step.template: step.name for step in config.steps if step.kind == "model"}
    sources = {name: files.text(name, f"prompts.templates.{step}") for name, step in named.items()}
    folders = {name.rpartition("/")[0] for name in named}
    for name in files.files:
        folder, _, file = name.rpartition("/")
        if folder in folders and file.endswith((".jinja2", ".j2")):
            sources.setdefault(name, files.text(name))
            sources.setdefault(file, files.text(name))
    try:
        return compile_templates(sources)
    except PromptError as error:
        raise ProcessError("", "", str(error)) from None


def _step(files: Folder, config: StepConfig, templates: Mapping[str, jinja2.Template]) -> Step:
    for key, reason in rule_problems(config.rules):
        where = f"validation.{config.name}" + (f".{key}" if key else "")
        raise ProcessError(CONFIG, where, reason)
    schema = _schema(files, config.schema, f"schemas.files.{config.name}")
    if schema is None and config.assignments:
        raise ProcessError(CONFIG, "assay.assign", f"step {config.name!r} has no schema")
    if schema is not None and config.schema is not None:
        try:
            derive_wire_schema(schema, [(a.path, a.value) for a in config.assignments])
            for assignment in config.assignments:
                with_const(schema, assignment.path, assignment.value)
        except (WireSchemaError, SchemaRefError) as error:
            raise ProcessError(config.schema, "", str(error)) from None
    return Step(
        name=config.name,
        kind=config.kind,
        output_schema=schema,
        rules=config.rules,
        assignments=config.assignments,
        settings=config.settings,
        template=templates[config.template] if config.kind == "model" else None,
    )


def _gate_config(config: ProcessConfig) -> GateConfig:
    try:
        return GateConfig.from_mapping(config.gate)
    except GateError as error:
        raise ProcessError(CONFIG, "assay.gate", str(error)) from None


def _check_input_fields(config: ProcessConfig, input_schema: Mapping[str, Any]) -> None:
    """The fields that config.yaml names must be required by the input schema, if there is one."""
    if config.input_schema is None:
        return
    properties = input_schema.get("properties", {})
    required = input_schema.get("required", ())
    if config.key is not None and config.key not in required:
        raise ProcessError(CONFIG, "assay.key", f"the input schema does not require {config.key!r}")
    for step in config.steps:
        for assignment in step.assignments:
            name = assignment.field
            if name and (name not in required or properties.get(name) != {"type": "boolean"}):
                raise ProcessError(
                    CONFIG, "assay.assign", f"the input schema requires no boolean {name!r}"
                )
