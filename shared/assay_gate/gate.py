"""The only door between a model and a program (DESIGN §4).

`Gate(schema, rules).judge(raw)` accepts an answer only where exactly one reasonable reading
exists and nothing is invented or lost. Everything else is rejected with a reason the model can
act on, so that it is asked again.

Where reasonable gates differ, this one decides as follows. Accepted: a key twice with the same
value, `7.8e2` as text for 780, one value before " | " in an enum, a stray quote inside a word, an
object in doubled braces. Rejected: a missing last brace, a number or boolean for a string, yes and
no, percent, units, thousands separators, words without quotes unless listed, a one-item list for
a scalar or an object, null for an array, tuples and sets, closers of the wrong kind, full-width
punctuation, a wrapper with a second key, a comment that stands for something left out. A scalar in
prose is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_gate.choice import Chooser, checked, rejected
from assay_gate.config import GateConfig
from assay_gate.paths import assign
from assay_gate.rules import Rules
from assay_gate.schema import Schema
from assay_gate.strict import NotStrict, StrictReader
from assay_gate.values import same
from assay_gate.verdict import Amend, GateError, Verdict, repair
from assay_gate.whole import Candidate


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
        self._chooser = Chooser(self._schema, self.config, self._strict)

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
            return rejected("pipeline_internal", "too_long", "the answer is too long")
        try:
            value = self._strict.read(raw)
        except NotStrict:
            return self._finish(self._chooser.from_text(raw), context, amend, unit_id)
        whole_float = self._strict.whole_float and self._schema.has_integers
        if not whole_float and self._chooser.is_plainly_valid(value):
            verdict = Verdict(True, value)
        else:
            verdict = self._chooser.choose([Candidate(value, [])])
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
        return self._finish(self._chooser.choose([Candidate(value, [])]), context, amend, unit_id)

    def validates(self, value: Any) -> bool:
        """Whether a value fits the schema as it stands, without repair or rules."""
        return checked(self._schema, value)

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
        if not checked(self._schema, verdict.value):
            raise GateError("an assigned value does not fit the schema")
