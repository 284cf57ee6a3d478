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
from assay_gate.process_assignments import Assignment
from assay_gate.process_coherence import check_input_fields, check_protected, check_result
from assay_gate.process_config import ProcessConfig, Shadow, parse_config
from assay_gate.process_definition import Process, Step
from assay_gate.process_endings import Policy
from assay_gate.process_findings import Findings
from assay_gate.process_folder import Folder, ProcessError, read_folder
from assay_gate.process_registry import ProcessRegistry, Version
from assay_gate.process_schema import checked_assignments, read_schema
from assay_gate.process_steps import StepConfig
from assay_gate.process_templates import read_templates
from assay_gate.prompt import PromptError
from assay_gate.rules.shape import rule_problems
from assay_gate.verdict import GateError

__all__ = [
    "Assignment",
    "Policy",
    "Process",
    "ProcessError",
    "PromptError",
    "Shadow",
    "Step",
    "build_process",
    "load_process",
    "load_processes",
    "load_registry",
]


def load_process(folder: Path | str) -> Process:
    """The process in a folder; ProcessError names the file and key of the first mistake."""
    found = Findings()
    process = build_process(read_folder(Path(folder)), found)
    found.raise_first()
    if process is None:
        raise ProcessError(str(folder), "", "is no process")
    return process


def load_registry(root: Path | str, used: Mapping[Version, str] | None = None) -> ProcessRegistry:
    """Every process under `root`, one folder per version; see `ProcessRegistry`."""
    folders = [folder for folder in sorted(Path(root).iterdir()) if (folder / CONFIG).is_file()]
    processes = []
    for folder in folders:
        try:
            processes.append(load_process(folder))
        except ProcessError as error:
            raise ProcessError(f"{folder.name}/{error.file}", error.key, error.reason) from None
    return ProcessRegistry(processes, used)


def load_processes(root: Path | str) -> dict[str, Process]:
    """The current version of every process under `root`, by id."""
    return dict(load_registry(root).by_id)


def build_process(files: Folder, found: Findings) -> Process | None:
    """The process that the files describe; every mistake goes to `found`, and with one there is
    no process."""
    if CONFIG not in files.files:
        found.mistake(str(files.path), "", f"there is no {CONFIG}")
        return None
    with found.caught():
        return _build(files, parse_config(files.yaml(CONFIG), found), found)
    return None


def _build(files: Folder, config: ProcessConfig, found: Findings) -> Process | None:
    input_schema: dict[str, Any] = {"type": "object"}
    with found.caught():
        given = read_schema(files, config.input_schema, "assay.input_schema")
        input_schema = given or input_schema
    folder, _, suffix = files.path.resolve().name.partition("@")
    if suffix and config.version not in (None, suffix):
        found.mistake(CONFIG, "assay.version", f"is {config.version}, the folder says {suffix}")
    named = {s.template: f"prompts.templates.{s.name}" for s in config.steps if s.template}
    templates = read_templates(files, named, found)
    steps = []
    for step in config.steps:
        with found.caught():
            steps.append(_step(files, step, config, templates, found))
    check_input_fields(config, input_schema, found)
    protected = frozenset(input_schema.get("properties", ()) if config.input_schema else ())
    check_protected(steps, protected, found)
    if config.steps and not any(step.kind == "model" for step in config.steps):
        found.mistake(CONFIG, "pipeline.steps", "no step asks a model")
    gate_config = GateConfig()
    try:
        gate_config = GateConfig.from_mapping(config.gate)
    except GateError as error:
        found.mistake(CONFIG, "assay.gate", str(error))
    if found.mistakes:
        return None
    process = Process(
        id=config.id or folder,
        version=config.version or suffix or f"sha256-{files.hash[:12]}",
        hash=files.hash,
        folder=files.path,
        input_schema=input_schema,
        key=config.key,
        steps=tuple(steps),
        protected=protected,
        usual_attempts=config.attempts,
        exhausted=config.endings.exhausted,
        empty_result=config.endings.empty_result,
        result=config.endings.result,
        shadow=config.shadow,
        caching=config.caching,
        api=config.api,
        processing=config.processing,
        _fallback=config.fallback,
        _fixed=config.fixed,
        _gate_config=gate_config,
        _input=jsonschema_rs.Draft202012Validator(input_schema),
    )
    check_result(process, found)
    return None if found.mistakes else process


def _step(
    files: Folder, config: StepConfig, process: ProcessConfig,
    templates: Mapping[str, jinja2.Template], found: Findings,
) -> Step:  # fmt: skip
    for key, reason in rule_problems(config.rules):
        where = f"validation.{config.name}" + (f".{key}" if key else "")
        found.mistake(CONFIG, where, reason)
    schema = None
    with found.caught():
        schema = read_schema(files, config.schema, f"schemas.files.{config.name}")
        if schema is None and config.assignments:
            raise ProcessError(CONFIG, "assay.assign", f"step {config.name!r} has no schema")
        if schema is not None and config.schema is not None:
            checked_assignments(schema, config.schema, config.assignments)
    return Step(
        name=config.name,
        kind=config.kind,
        output_schema=schema,
        rules=config.rules,
        assignments=config.assignments,
        settings=config.settings,
        context=config.context,
        attempts=process.step_attempts.get(config.name, process.attempts),
        program=config.program,
        template=templates.get(config.template),
    )
