"""Process definitions: a folder that says what a model is asked and what its answer must be.

DESIGN §4: config.yaml in seed 4's shape, prompt templates, input and output schema, rules.
Everything is read and checked once, here; a loaded process does no IO.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import jsonschema_rs

from assay_gate.config import GateConfig
from assay_gate.config_reading import CONFIG
from assay_gate.process_config import Policy, ProcessConfig, parse_config
from assay_gate.process_definition import Process, Step
from assay_gate.process_folder import Folder, ProcessError, read_folder
from assay_gate.process_steps import Assignment, StepConfig
from assay_gate.prompt import PromptError, compile_templates
from assay_gate.rules.shape import rule_problems
from assay_gate.schema_refs import SchemaRefError, check_refs, with_const
from assay_gate.verdict import GateError
from assay_gate.wire_merge import WireSchemaError
from assay_gate.wire_schema import derive_wire_schema

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

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


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
