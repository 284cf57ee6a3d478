"""The one value all readings of an answer agree on, or why there is none (rules 3 and 4).

Every JSON value found in the text is read by the schema: as it stands, coerced, or out of a
wrapper. Two different fitting values are refused, as are two readings of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay_gate.coerce import Coercion, Refused
from assay_gate.config import GateConfig
from assay_gate.scan import find_candidates
from assay_gate.schema import Schema
from assay_gate.strict import StrictReader
from assay_gate.tokens import Bare, Unreadable, holds_bare
from assay_gate.values import same
from assay_gate.verdict import Problem, Repair, Verdict, problem, repair
from assay_gate.whole import Candidate, read_whole

_MOST_WRAPPERS = 3
_AMBIGUOUS = frozenset(("duplicate_key", "ambiguous"))


@dataclass(slots=True)
class _Reading:
    """A candidate read by the schema: the value and repairs if it fits, else the reasons."""

    value: Any
    repairs: list[Repair]
    problems: list[Problem]


class Chooser:
    """Chooses among the candidates of one answer after another, by one schema."""

    def __init__(self, schema: Schema, config: GateConfig, strict: StrictReader) -> None:
        self.schema = schema
        self.config = config
        self._strict = strict
        self._reserved = frozenset(config.reserved_fields)
        self._wrappers = frozenset(name.casefold() for name in config.wrapper_keys)

    def from_text(self, raw: str) -> Verdict:
        """The verdict on a text that is not strict JSON."""
        try:
            return self.choose(find_candidates(raw, self.config, self._strict))
        except Unreadable as fault:
            return _unreadable(fault)

    def is_plainly_valid(self, value: Any) -> bool:
        """Whether a value fits as it stands and names no reserved field."""
        if isinstance(value, dict) and not self._reserved.isdisjoint(value):
            return False
        return checked(self.schema, value)

    def choose(self, candidates: list[Candidate]) -> Verdict:
        """The verdict on the values found in one answer."""
        fitting: list[_Reading] = []
        failed: list[_Reading] = []
        try:
            for candidate in candidates:
                reading = self._read(candidate, _MOST_WRAPPERS)
                (failed if reading.problems else fitting).append(reading)
        except Unreadable as fault:
            return _unreadable(fault)
        except RecursionError:
            return rejected("pipeline_internal", "too_deep", "the answer nests too deeply")
        if not fitting and isinstance(candidates[0].value, Bare):
            return rejected("pipeline_internal", "not_json", "no JSON was found in the answer")
        if not fitting:
            return Verdict(False, stage="schema_validation", errors=_nearest(failed).problems)
        if any(not same(fitting[0].value, other.value) for other in fitting[1:]):
            return rejected(
                "schema_validation", "ambiguous",
                "the text holds several different answers; give exactly one JSON value",
            )  # fmt: skip
        if any(reading.problems[0]["rule"] in _AMBIGUOUS for reading in failed):
            return Verdict(False, stage="schema_validation", errors=_nearest(failed).problems)
        return Verdict(True, fitting[0].value, repairs=fitting[0].repairs)

    def _read(self, candidate: Candidate, wrappers: int) -> _Reading:
        reading = self._fit(candidate)
        value = candidate.value
        if not reading.problems or not wrappers or not isinstance(value, dict) or len(value) != 1:
            return reading
        ((name, inner),) = value.items()
        if name.casefold() not in self._wrappers or not isinstance(inner, dict | list | str):
            return reading
        log = [*candidate.repairs, repair("$", "unwrapped", value, inner)]
        if not isinstance(inner, str):
            within = self._read(Candidate(inner, log, candidate.bare), wrappers - 1)
            return _nearest([within, reading]) if within.problems else within
        try:
            found = find_candidates(inner, self.config, self._strict)
        except Unreadable:
            return reading
        found = [candidate for candidate in found if isinstance(candidate.value, dict | list)]
        inside = [self._read(candidate, wrappers - 1) for candidate in found]
        fitting = [reading for reading in inside if not reading.problems]
        if not fitting:
            return _nearest([*inside, reading])
        if any(not same(fitting[0].value, other.value) for other in fitting[1:]):
            several = problem("$", "ambiguous", f"{name!r} holds several different answers")
            return _Reading(None, [], [several])
        return _Reading(fitting[0].value, log + fitting[0].repairs, [])

    def _fit(self, candidate: Candidate) -> _Reading:
        value = candidate.value
        if candidate.clean and self.is_plainly_valid(value):
            return _Reading(value, candidate.repairs, [])
        coercion = Coercion(self.schema, self.config, self._read_nested, bare=candidate.bare)
        try:
            coerced = coercion.run(value)
        except Refused as fault:
            return _Reading(None, [], [problem(fault.path, fault.rule, str(fault))])
        if candidate.bare and holds_bare(coerced):
            words = problem("$", "unquoted", "text without quotes; write strings in double quotes")
            return _Reading(None, [], [words])
        if not checked(self.schema, coerced):
            if coerced is value or not checked(self.schema, value):
                return _Reading(None, [], self.schema.problems(coerced))
            coerced, coercion.repairs = value, []
        if isinstance(coerced, dict):
            for name in self.config.reserved_fields:
                if name in coerced:
                    reserved = problem(f"$.{name}", "reserved_field", "leave this field out")
                    return _Reading(None, [], [reserved])
        return _Reading(coerced, candidate.repairs + coercion.repairs, [])

    def _read_nested(self, text: str) -> Any:
        return read_whole(text, self.config, self._strict)


def checked(schema: Schema, value: Any) -> bool:
    """`is_valid`, where a value the validator cannot even take (a lone surrogate) is invalid."""
    try:
        return schema.is_valid(value)
    except ValueError:
        return False


def _nearest(failed: list[_Reading]) -> _Reading:
    """The failed candidate whose reasons help the model most: the fewest, ambiguity first."""
    return min(failed, key=lambda r: (r.problems[0]["rule"] not in _AMBIGUOUS, len(r.problems)))


def _unreadable(fault: Unreadable) -> Verdict:
    stage = "schema_validation" if fault.rule in _AMBIGUOUS else "pipeline_internal"
    place = f" (at character {fault.offset})" if fault.offset else ""
    return rejected(stage, fault.rule, fault.message + place)


def rejected(stage: Any, rule: str, message: str) -> Verdict:
    return Verdict(False, stage=stage, errors=[problem("$", rule, message)])
