"""config.yaml of a process: seed 4's own shape plus one section of ours, `assay:`.

Seed 4's sections mean what they mean there (pipeline, prompts, schemas, validation, api,
processing); all of `assay:` is optional, so a configuration of that system loads unchanged:

id            the process id; the folder's name where it is not given
version       text; the folder's hash where it is not given
input_schema  file with the JSON Schema of a request's input; null: any object
key           input field that is the partition key; null: the request id
temperatures  one per attempt (S1.4); their number is the number of attempts
max_tokens    longest answer, in tokens; null: the scorer's setting
steps         {step: {temperatures, max_tokens}} where a step differs
result        topic that takes the result
exhausted     {provider_unavailable, answers_rejected}: see `process_endings`
empty_result  the JSON value of the ending `empty_result`
assign        [{path, value, when, step}]: values the system sets itself (S3.4)
gate          limits and choices of the gate (GateConfig)
shadow        {of, share}: runs beside process `of` on a share of its traffic, recorded only
cache         true or {max_age_s}: accepted answers may be served again, see `process_cache`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_gate.config_reading import CONFIG, section, text
from assay_gate.hints import hint
from assay_gate.process_assignments import parse_assignments
from assay_gate.process_attempts import Attempts, parse_attempts, parse_step_attempts
from assay_gate.process_cache import Caching, parse_caching
from assay_gate.process_endings import Endings, parse_endings
from assay_gate.process_findings import Findings
from assay_gate.process_folder import ProcessError
from assay_gate.process_steps import StepConfig, parse_steps

SECTIONS = ("pipeline", "prompts", "schemas", "validation", "api", "processing", "assay")
KEYS = (
    "id", "version", "input_schema", "key", "temperatures", "max_tokens", "steps", "result",
    "exhausted", "empty_result", "assign", "gate", "shadow", "cache",
)  # fmt: skip
_SHADOW = ("of", "share")


@dataclass(frozen=True, slots=True)
class Shadow:
    """Runs beside the process `of` for a share (0 to 1) of the keys."""

    of: str
    share: float


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """A checked config.yaml; see the module for the meaning of each field.

    `own` is whether it has a section `assay`. `fallback` and `fixed` are constants for templates,
    below and above the input's fields.
    """

    own: bool
    id: str | None
    version: str | None
    steps: tuple[StepConfig, ...]
    input_schema: str | None
    key: str | None
    attempts: Attempts
    step_attempts: Mapping[str, Attempts]
    endings: Endings
    shadow: Shadow | None
    caching: Caching | None
    gate: Mapping[str, Any]
    api: Mapping[str, Any]
    processing: Mapping[str, Any]
    fallback: Mapping[str, Any]
    fixed: Mapping[str, Any]


def parse_config(config: Mapping[str, Any], found: Findings) -> ProcessConfig:
    """The configuration that config.yaml describes, as far as it can be read; every mistake in it
    goes to `found`."""
    given = {name: _section(config, name, found) for name in ("assay", "api", "processing")}
    ours, api, processing = given["assay"], given["api"], given["processing"]
    for key in ours:
        if key not in KEYS:
            close = hint(key, KEYS) or f"; known: {', '.join(KEYS)}"
            found.mistake(CONFIG, f"assay.{key}", "no such key" + close)
    steps = parse_steps(config, parse_assignments(ours, found), found)
    attempts = parse_attempts(ours, api, processing, found)
    models = [step.name for step in steps if step.kind == "model"]
    fallback, fixed = _constants(config, found)
    return ProcessConfig(
        own="assay" in config,
        id=_text(ours, "id", found),
        version=_text(ours, "version", found),
        steps=steps,
        input_schema=_text(ours, "input_schema", found),
        key=_text(ours, "key", found),
        attempts=attempts,
        step_attempts=parse_step_attempts(ours, models, attempts, found),
        endings=parse_endings(ours, found),
        shadow=_shadow(ours, found),
        caching=parse_caching(ours, found),
        gate=_gate(config, ours, found),
        api=api,
        processing=processing,
        fallback=fallback,
        fixed=fixed,
    )


def _section(config: Mapping[str, Any], name: str, found: Findings) -> Mapping[str, Any]:
    with found.caught():
        return section(config, name, {})
    return {}


def _text(ours: Mapping[str, Any], key: str, found: Findings) -> str | None:
    with found.caught():
        return text(ours, key, "assay.")
    return None


def _shadow(ours: Mapping[str, Any], found: Findings) -> Shadow | None:
    if ours.get("shadow") is None:
        return None
    with found.caught():
        given = section(ours, "shadow", None, "assay.")
        for key in given:
            if key not in _SHADOW:
                found.mistake(CONFIG, f"assay.shadow.{key}", "no such key" + hint(key, _SHADOW))
        of = text(given, "of", "assay.shadow.")
        share = given.get("share")
        if of is None:
            raise ProcessError(CONFIG, "assay.shadow.of", "missing: the id of a process")
        number = isinstance(share, int | float) and not isinstance(share, bool)
        if share is None or not number or not 0 < share <= 1:
            raise ProcessError(
                CONFIG, "assay.shadow.share", f"must be above 0 and at most 1, not {share!r}"
            )
        return Shadow(of, float(share))
    return None


def _gate(config: Mapping[str, Any], ours: Mapping[str, Any], found: Findings) -> Mapping[str, Any]:
    """The gate's settings; a configuration of seed 4's kind gets the enum prefix of its table."""
    if "assay" not in config:
        return {"enum_prefixes": ["shadow "]}
    with found.caught():
        return section(ours, "gate", {}, "assay.")
    return {}


def _constants(
    config: Mapping[str, Any], found: Findings
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Constants for templates: `prompts.global_context`, and in seed 4's kind the configuration
    itself, as `config` and key by key."""
    fixed: Mapping[str, Any] = {}
    with found.caught():
        prompts = config.get("prompts")
        if isinstance(prompts, Mapping):
            fixed = section(prompts, "global_context", {}, "prompts.")
    if "assay" in config:
        return {}, fixed
    return {str(key): value for key, value in config.items()}, {"config": config, **fixed}
