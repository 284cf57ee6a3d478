"""The only door between a model and a program (DESIGN §4).

`Gate(schema, rules).judge(raw)` accepts an answer only where exactly one reasonable reading
exists and nothing is invented or lost. Everything else is rejected with a reason the model can
act on, so that it is asked again.

Where reasonable gates differ, this one decides as follows. Accepted: a key twice with the same
value, `7.8e2` as text for 780, one value before " | " in an enum, a stray quote inside a word, an
object in doubled braces. Rejected: a missing last brace, a number or boolean for a string, yes and
no, percent, units, thousands separators, words without quotes unless listed, a one-item list for
a scalar or an object, null for an array, tuples and sets, closers of the wrong kind, full-width
punctuation, a wrapper with a second key. A scalar in prose is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_gate.coerce import Coercion, Refused
from assay_gate.config import GateConfig
from assay_gate.paths import assign
from assay_gate.rules import Rules
from assay_gate.scan import find_candidates
from assay_gate.schema import Schema
from assay_gate.strict import NotStrict, StrictReader
from assay_gate.tokens import Bare, Unreadable, holds_bare
from assay_gate.values import same
from assay_gate.verdict import Amend, GateError, Problem, Repair, Verdict, problem, repair
from assay_gate.whole import Candidate, read_whole

_MOST_WRAPPERS = 3
_AMBIGUOUS = frozenset(("duplicate_key", "ambiguous"))


@dataclass(slots=True)
class _Reading:
    """A candidate read by the schema: the value and repairs if it fits, else the reasons."""

    value: Any
    repairs: list[Repair]
    problems: list[Problem]


class Gate:
    """Judges raw answers against one schema and one set of rules; compiled once, used often.

    schema  a JSON Schema (Draft 2020-12), or None to ask for JSON only (SPEC S5.7)
    rules   the mapping under `validation.<step>` of a seed 4 configuration, a Rules, or None
    config  limits and reading choices

    Raises GateError for a schema or rule that cannot be used. Safe to share between threads.
    """

    def __init__(
        self,
        schema: dict[str, Any] | bool | None,
        rules: Mapping[str, Any] | Rules | None = None,
        *,
        config: GateConfig | None = None,
    ) -> None:
        self.config = config or GateConfig()
        self._schema = Schema(
            True if schema is None else schema, assert_formats=self.config.assert_formats
        )
        if rules is None or isinstance(rules, Rules):
            self._rules = rules
        else:
            self._rules = Rules(rules, config=self.config)
        self._strict = StrictReader(self.config.max_depth)
        self._reserved = frozenset(self.config.reserved_fields)
        self._wrappers = frozenset(name.casefold() for name in self.config.wrapper_keys)

    def judge(
        self,
        raw: str,
        context: Mapping[str, Any] | None = None,
        amend: Amend | None = None,
        *,
        unit_id: str | None = None,
    ) -> Verdict:
        """The verdict on one raw answer; never raises for anything the answer holds.

        context  the input's fields; rules see `{**context, **answer}` (SPEC S4.4, S4.10)
        amend    values set after the schema check and before the rules (SPEC S3.4)
        unit_id  seeds `random` in rules; taken from the context if it has one
        """
        if len(raw) > self.config.max_characters:
            return _rejected("pipeline_internal", "too_long", "the answer is too long")
        try:
            value = self._strict.read(raw)
        except NotStrict:
            return self._finish(self._judge_text(raw), context, amend, unit_id)
        whole_float = self._strict.whole_float and self._schema.has_integers
        if not whole_float and self._is_plainly_valid(value):
            verdict = Verdict(True, value)
        else:
            verdict = self._choose([Candidate(value, [])], raw)
        if amend is None and self._rules is None:
            return verdict
        return self._finish(verdict, context, amend, unit_id)

    def judge_value(
        self,
        value: Any,
        context: Mapping[str, Any] | None = None,
        amend: Amend | None = None,
        *,
        unit_id: str | None = None,
    ) -> Verdict:
        """The verdict on a value that is parsed already, coerced like an answer."""
        return self._finish(self._choose([Candidate(value, [])], ""), context, amend, unit_id)

    def validates(self, value: Any) -> bool:
        """Whether a value fits the schema as it stands, without repair or rules."""
        return _checked(self._schema, value)

    def _is_plainly_valid(self, value: Any) -> bool:
        if isinstance(value, dict) and not self._reserved.isdisjoint(value):
            return False
        return _checked(self._schema, value)

    def _judge_text(self, raw: str) -> Verdict:
        try:
            return self._choose(find_candidates(raw, self.config, self._strict), raw)
        except Unreadable as fault:
            return _unreadable(fault)

    def _choose(self, candidates: list[Candidate], raw: str) -> Verdict:
        """The one value all fitting candidates agree on."""
        fitting: list[_Reading] = []
        failed: list[_Reading] = []
        try:
            for candidate in candidates:
                reading = self._read(candidate, _MOST_WRAPPERS)
                (failed if reading.problems else fitting).append(reading)
        except Unreadable as fault:
            return _unreadable(fault)
        except RecursionError:
            return _rejected("pipeline_internal", "too_deep", "the answer nests too deeply")
        if not fitting and isinstance(candidates[0].value, Bare):
            return _rejected("pipeline_internal", "not_json", "no JSON was found in the answer")
        if not fitting:
            return Verdict(False, stage="schema_validation", errors=_nearest(failed).problems)
        if any(not same(fitting[0].value, other.value) for other in fitting[1:]):
            return _rejected(
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
        if candidate.clean and self._is_plainly_valid(value):
            return _Reading(value, candidate.repairs, [])
        coercion = Coercion(self._schema, self.config, self._read_nested, bare=candidate.bare)
        try:
            coerced = coercion.run(value)
        except Refused as fault:
            return _Reading(None, [], [problem(fault.path, fault.rule, str(fault))])
        if candidate.bare and holds_bare(coerced):
            words = problem("$", "unquoted", "text without quotes; write strings in double quotes")
            return _Reading(None, [], [words])
        if not _checked(self._schema, coerced):
            if coerced is value or not _checked(self._schema, value):
                return _Reading(None, [], self._schema.problems(coerced))
            coerced, coercion.repairs = value, []
        if isinstance(coerced, dict):
            for name in self.config.reserved_fields:
                if name in coerced:
                    reserved = problem(f"$.{name}", "reserved_field", "leave this field out")
                    return _Reading(None, [], [reserved])
        return _Reading(coerced, candidate.repairs + coercion.repairs, [])

    def _read_nested(self, text: str) -> Any:
        return read_whole(text, self.config, self._strict)

    def _finish(
        self,
        verdict: Verdict,
        context: Mapping[str, Any] | None,
        amend: Amend | None,
        unit_id: str | None,
    ) -> Verdict:
        if not verdict.accepted:
            return verdict
        if amend is not None:
            self._amend(verdict, amend)
        if self._rules is None:
            return verdict
        record = dict(context or {})
        if isinstance(verdict.value, dict):
            record |= verdict.value
        unit = unit_id if unit_id is not None else str(record.get("unit_id", ""))
        errors, verdict.warnings = self._rules.check(record, unit)
        if errors:
            return Verdict(
                False, stage="validation", errors=errors, repairs=verdict.repairs,
                warnings=verdict.warnings,
            )  # fmt: skip
        return verdict

    def _amend(self, verdict: Verdict, amend: Amend) -> None:
        for path, new in amend(verdict.value) if callable(amend) else amend:
            verdict.value, before = assign(verdict.value, path, new)
            if not same(before, new):
                verdict.repairs.append(repair(path, "assigned", before, new))
        if not _checked(self._schema, verdict.value):
            raise GateError("an assigned value does not fit the schema")


def _checked(schema: Schema, value: Any) -> bool:
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
    return _rejected(stage, fault.rule, fault.message + place)


def _rejected(stage: Any, rule: str, message: str) -> Verdict:
    return Verdict(False, stage=stage, errors=[problem("$", rule, message)])
