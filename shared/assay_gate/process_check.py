"""`assay process check`: seed 4's `--validate-config`, every mistake of a folder in one run (S4.9).

1 required sections  2 the 4-point link rule  3 templates exist, compile and know their fields
4 schemas are valid Draft 2020-12  5 expression steps evaluate on a sample record  6 rules parse

All that `load_process` refuses is a mistake here too; the rest of these checks costs too much for
the start of a service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay_gate.config import GateConfig
from assay_gate.config_reading import CONFIG
from assay_gate.expression_trial import try_program
from assay_gate.hints import hint
from assay_gate.process import build_process
from assay_gate.process_config import ProcessConfig, parse_config
from assay_gate.process_definition import Process
from assay_gate.process_fields import Fields, add_answer, input_fields
from assay_gate.process_findings import Finding, Findings
from assay_gate.process_folder import Folder, ProcessError, read_folder
from assay_gate.process_keys import check_keys
from assay_gate.process_registry import ProcessRegistry
from assay_gate.process_schema import INJECTED, read_schema
from assay_gate.process_steps import UNIT_EXPRESSIONS, StepConfig
from assay_gate.process_templates import template_files
from assay_gate.prompt import PromptError, compile_templates
from assay_gate.template_fields import needed_fields, private_attributes
from assay_gate.verdict import GateError

_REQUIRED = ("pipeline", "prompts", "schemas", "api", "processing")
_MISSPELT = 0.8


@dataclass(slots=True)
class Checked:
    """What was found in one folder; `process` only where it has no mistake that stops loading."""

    folder: Path
    findings: list[Finding] = field(default_factory=list)
    process: Process | None = None

    @property
    def mistakes(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "mistake"]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "warning"]


def check_processes(root: Path) -> list[Checked]:
    """The findings of a process folder, or of each process in a folder of them; empty where
    there is no process."""
    if (root / CONFIG).is_file():
        return [check_folder(root)]
    folders = [folder for folder in sorted(root.iterdir()) if (folder / CONFIG).is_file()]
    checked = [check_folder(folder) for folder in folders]
    processes = [result.process for result in checked if result.process is not None]
    if len(processes) == len(checked):
        try:
            ProcessRegistry(processes)
        except ProcessError as error:
            name, _, file = error.file.partition("/")
            for result in checked:
                if result.folder.name == name:
                    finding = Finding("mistake", file, error.key, error.reason)
                    result.findings.append(finding)
    return checked


def check_folder(folder: Path) -> Checked:
    """Every mistake and warning of one process folder."""
    found = Findings()
    result = Checked(folder, found.all)
    with found.caught():
        files = read_folder(folder)
        result.process = build_process(files, found)
        if CONFIG in files.files:
            _check(files, files.yaml(CONFIG), found)
    return result


def _check(files: Folder, raw: Mapping[str, Any], found: Findings) -> None:
    for name in _REQUIRED:
        if name not in raw:
            close = hint(name, [key for key in raw if key not in _REQUIRED])
            found.mistake(CONFIG, name, "missing" + close)
    check_keys(raw, found)
    config = parse_config(raw, Findings())
    fields = input_fields(files, config, _schema(files, config.input_schema), found)
    named = [step.template for step in config.steps if step.template]
    known = template_files(files, named)
    sources = {name: files.files[file].decode(errors="replace") for name, file in known.items()}
    for step in config.steps:
        if step.program is not None:
            limits = _limits(config)
            try_program(step.program, fields, _where(raw, step.name), limits, found)
            continue
        if step.template in sources:
            _check_template(sources, known, step, config, fields, found)
        schema = _schema(files, step.schema)
        if schema is not None and not config.own:
            _check_open(step.schema or "", schema, found)
        add_answer(fields, step, schema)


def _check_template(
    sources: Mapping[str, str], files: Mapping[str, str], step: StepConfig,
    config: ProcessConfig, fields: Fields, found: Findings,
) -> None:  # fmt: skip
    known = {*fields.samples, *config.fallback, *config.fixed, *step.context}
    try:
        compile_templates(sources)
        needed = needed_fields(sources, step.template)
        private = private_attributes(sources, step.template)
    except PromptError:
        return  # said when the process was built
    for attribute in private:
        found.mistake(step.template, attribute, "the sandbox refuses attributes like this one")
    for name, part in sorted(needed.items()):
        if name in known:
            continue
        if fields.open:
            # Whatever it is, an input may bring it; one letter beside a known name is doubtful.
            made = {*fields.samples, *config.fixed, *step.context} - set(config.fallback)
            if close := hint(name, made, _MISSPELT):
                message = f"step {step.name!r}: only an input could bring such a field"
                found.warning(files[part], name, message + close)
            continue
        message = f"step {step.name!r}: neither the input nor an earlier step has such a field"
        found.mistake(files[part], name, message + hint(name, known))


def _check_open(file: str, schema: Mapping[str, Any], found: Findings) -> None:
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if schema.get(keyword) is False:
            found.mistake(
                file, keyword,
                "false at the top level refuses the fields that are merged into every record of "
                f"a configuration of this kind ({', '.join(INJECTED)} and the input's); leave it "
                "out, or add a section assay to config.yaml, where the schema judges the answer "
                "alone",
            )  # fmt: skip


def _schema(files: Folder, name: str | None) -> dict[str, Any] | None:
    try:
        return read_schema(files, name, "")
    except ProcessError:
        return None  # said when the process was built


def _limits(config: ProcessConfig) -> GateConfig:
    try:
        return GateConfig.from_mapping(config.gate)
    except GateError:
        return GateConfig()  # said when the process was built


def _where(raw: Mapping[str, Any], name: str) -> str:
    """The key of a step's entry, by its number as in the other messages."""
    if name == UNIT_EXPRESSIONS:
        return "processing"
    names = [step.get("name") for step in raw["pipeline"]["steps"] if isinstance(step, Mapping)]
    return f"pipeline.steps[{names.index(name)}]"
