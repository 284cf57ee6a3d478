"""How often and how hot a model is asked, per process and per step (SPEC S1.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_gate.config_reading import CONFIG, section, whole
from assay_gate.hints import hint
from assay_gate.process_findings import Findings
from assay_gate.process_folder import ProcessError

_DECAY = (0.3, 0.2, 0.1)
_DEFAULT_ATTEMPTS = 2
_MAX_ATTEMPTS = 10
_KEYS = ("temperatures", "max_tokens")


@dataclass(frozen=True, slots=True)
class Attempts:
    """One temperature per attempt; the longest answer in tokens, None: the scorer's setting."""

    temperatures: tuple[float, ...] = _DECAY[:_DEFAULT_ATTEMPTS]
    max_tokens: int | None = None


def parse_attempts(
    ours: Mapping[str, Any], api: Mapping[str, Any], processing: Mapping[str, Any], found: Findings
) -> Attempts:
    """The attempts of the process: `assay.temperatures`, else S1.4's decay for seed 4's number."""
    attempts: int | None = None
    with found.caught():
        attempts = _attempts(api, processing)
    wanted = attempts or _DEFAULT_ATTEMPTS
    usual = Attempts(tuple(_DECAY[min(n, len(_DECAY) - 1)] for n in range(wanted)))
    return _attempts_in(ours, "assay.", usual, attempts, found)


def parse_step_attempts(
    ours: Mapping[str, Any], models: list[str], usual: Attempts, found: Findings
) -> dict[str, Attempts]:
    """`assay.steps.<step>`: {temperatures, max_tokens} where a step differs from its process."""
    steps: dict[str, Attempts] = {}
    with found.caught():
        for name, given in section(ours, "steps", {}, "assay.").items():
            where = f"assay.steps.{name}"
            if name not in models:
                found.mistake(CONFIG, where, "no step of this name asks a model"
                              + hint(name, models))  # fmt: skip
                continue
            with found.caught():
                if not isinstance(given, Mapping):
                    raise ProcessError(CONFIG, where, "must be a mapping")
                for key in given:
                    if key not in _KEYS:
                        found.mistake(CONFIG, f"{where}.{key}", "no such key" + hint(key, _KEYS))
                steps[name] = _attempts_in(given, f"{where}.", usual, None, found)
    return steps


def _attempts_in(
    given: Mapping[str, Any], where: str, usual: Attempts, agreed: int | None, found: Findings
) -> Attempts:
    temperatures, max_tokens = usual.temperatures, usual.max_tokens
    with found.caught():
        temperatures = _temperatures(given.get("temperatures"), where, usual, agreed)
    with found.caught():
        max_tokens = whole(given.get("max_tokens"), f"{where}max_tokens") or usual.max_tokens
    return Attempts(temperatures, max_tokens)


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


def _temperatures(
    given: object, where: str, usual: Attempts, agreed: int | None
) -> tuple[float, ...]:
    if given is None:
        return usual.temperatures
    key = f"{where}temperatures"
    if not isinstance(given, list) or not 1 <= len(given) <= _MAX_ATTEMPTS:
        raise ProcessError(CONFIG, key, f"must be a list of 1 to {_MAX_ATTEMPTS} numbers")
    for value in given:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2:
            raise ProcessError(CONFIG, key, f"must hold numbers from 0 to 2, not {value!r}")
    if agreed is not None and agreed != len(given):
        raise ProcessError(
            CONFIG, key, f"has {len(given)} attempts where max_attempts says {agreed}"
        )
    return tuple(float(value) for value in given)
