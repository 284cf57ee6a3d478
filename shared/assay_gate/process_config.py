"""config.yaml of a process: seed 4's own shape plus one section of ours, `assay:`.

Seed 4's sections mean what they mean there (pipeline, prompts, schemas, validation, api,
processing); all of `assay:` is optional, so a configuration of that system loads unchanged:

id            the process id; the folder's name where it is not given
version       text; the folder's hash where it is not given
input_schema  file with the JSON Schema of a request's input; null: any object
key           input field that is the partition key; null: the request id
temperatures  one per attempt (S1.4); their number is the number of attempts
max_tokens    longest answer, in tokens; null: the scorer's setting
exhausted     {provider_unavailable, answers_rejected}: fallback_score or withhold (S3.6)
result        topic that takes the result
assign        [{path, value, when, step}]: values the system sets itself (S3.4)
gate          limits and choices of the gate (GateConfig)
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from assay_gate.config_reading import CONFIG, section, text, whole
from assay_gate.process_folder import ProcessError
from assay_gate.process_steps import StepConfig, parse_assignments, parse_steps

Policy: TypeAlias = Literal["fallback_score", "withhold"]
GENERIC_RESULT = "llm.generation.accepted.v1"
_KNOWN = (
    "id", "version", "input_schema", "key", "temperatures", "max_tokens", "exhausted", "result",
    "assign", "gate",
)  # fmt: skip
_REASONS = ("provider_unavailable", "answers_rejected")
_DECAY = (0.3, 0.2, 0.1)
_DEFAULT_ATTEMPTS = 2
_MAX_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """A checked config.yaml; see the module for the meaning of each field."""

    id: str | None
    version: str | None
    steps: tuple[StepConfig, ...]
    input_schema: str | None
    key: str | None
    temperatures: tuple[float, ...]
    max_tokens: int | None
    exhausted: Mapping[str, Policy]
    result: str
    gate: Mapping[str, Any]
    api: Mapping[str, Any]
    processing: Mapping[str, Any]


def parse_config(config: Mapping[str, Any]) -> ProcessConfig:
    """The configuration that config.yaml describes; ProcessError names the first wrong key."""
    ours = section(config, "assay", {})
    if unknown := sorted(set(ours) - set(_KNOWN), key=str):
        close = difflib.get_close_matches(str(unknown[0]), _KNOWN, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(_KNOWN)}"
        raise ProcessError(CONFIG, f"assay.{unknown[0]}", "no such key" + hint)
    exhausted = section(ours, "exhausted", {}, "assay.")
    if wrong := sorted(set(exhausted) - set(_REASONS), key=str):
        raise ProcessError(
            CONFIG, f"assay.exhausted.{wrong[0]}", f"no such reason; known: {', '.join(_REASONS)}"
        )
    for reason, policy in exhausted.items():
        if policy not in get_args(Policy):
            raise ProcessError(
                CONFIG, f"assay.exhausted.{reason}", f"must be one of {', '.join(get_args(Policy))}"
            )
    processing = section(config, "processing", {})
    api = section(config, "api", {})
    return ProcessConfig(
        id=text(ours, "id", "assay."),
        version=text(ours, "version", "assay."),
        steps=parse_steps(config, parse_assignments(ours)),
        input_schema=text(ours, "input_schema", "assay."),
        key=text(ours, "key", "assay."),
        temperatures=_temperatures(ours, _attempts(api, processing)),
        max_tokens=whole(ours.get("max_tokens"), "assay.max_tokens"),
        exhausted={reason: exhausted.get(reason, "withhold") for reason in _REASONS},
        result=text(ours, "result", "assay.") or GENERIC_RESULT,
        gate=section(ours, "gate", {}, "assay."),
        api=api,
        processing=processing,
    )


def _attempts(api: Mapping[str, Any], processing: Mapping[str, Any]) -> int | None:
    """Seed 4's number of attempts: of validation, else of the API."""
    for parent, name, where in (
        (processing, "validation_retry", "processing."),
        (api, "retry", "api."),
    ):
        retry = section(parent, name, {}, where)
        attempts = whole(retry.get("max_attempts"), f"{where}{name}.max_attempts")
        if attempts is not None:
            return min(attempts, _MAX_ATTEMPTS)
    return None


def _temperatures(ours: Mapping[str, Any], attempts: int | None) -> tuple[float, ...]:
    """One temperature per attempt; where none is given, S1.4's decay, then its last value."""
    given = ours.get("temperatures")
    if given is None:
        wanted = attempts or _DEFAULT_ATTEMPTS
        return tuple(_DECAY[min(n, len(_DECAY) - 1)] for n in range(wanted))
    key = "assay.temperatures"
    if not isinstance(given, list) or not 1 <= len(given) <= _MAX_ATTEMPTS:
        raise ProcessError(CONFIG, key, f"must be a list of 1 to {_MAX_ATTEMPTS} numbers")
    for value in given:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2:
            raise ProcessError(CONFIG, key, f"must hold numbers from 0 to 2, not {value!r}")
    if attempts is not None and attempts != len(given):
        raise ProcessError(
            CONFIG, key, f"has {len(given)} attempts where max_attempts says {attempts}"
        )
    return tuple(float(value) for value in given)
