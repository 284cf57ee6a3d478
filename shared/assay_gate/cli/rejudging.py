"""Today's verdict on an answer that was judged before, and what changed (SPEC S4.7). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from assay_gate.process import Process, ProcessError
from assay_gate.values import same
from assay_gate.verdict import GateError, Problem, Verdict, problem

Change: TypeAlias = Literal[
    "none", "accepted", "rejected", "errors", "value", "not_judged", "no_verdict"
]
"""`accepted` and `rejected` say what the answer would be now. `not_judged`: there is no whole
answer, or no such step today. `no_verdict`: none was recorded to compare with."""

CHANGES: tuple[Change, ...] = ("accepted", "rejected", "errors", "value")


# How the validator and the scorer name an answer that ended before it was whole.
_NOT_WHOLE = ("finish_reason", "answer_incomplete")


@dataclass(frozen=True, slots=True)
class OldVerdict:
    """What was said then; `output` is None where it was not kept. `is_result`: it is that of the
    whole process, which of several steps is more than the last one's answer."""

    accepted: bool
    stage: str | None = None
    errors: list[Problem] = field(default_factory=list)
    output: Any = None
    is_result: bool = False


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A raw answer with the input it was judged beside. `raw` is None where the model gave none;
    `cut_off` answers are never repaired, so that no schema could accept them. A `raw` that is no
    text is an answer kept as parsed JSON."""

    unit_id: str | None
    request_id: str | None
    step: str | None
    input: Mapping[str, Any]
    raw: Any
    old: OldVerdict | None
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """Then and now. `reason` says why an answer was not judged."""

    answer: StoredAnswer
    step: str
    change: Change
    now: Verdict | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        old = self.answer.old
        shape: dict[str, Any] = {
            "unit_id": self.answer.unit_id,
            "request_id": self.answer.request_id,
            "step": self.step,
            "change": self.change,
            "before": _shown(old.accepted, old.stage, old.errors) if old else None,
            "now": None,
        }
        if self.now is not None:
            shape["now"] = _shown(self.now.accepted, self.now.stage, self.now.errors)
            if self.now.accepted:
                shape["now"]["value"] = self.now.value
        if self.reason is not None:
            shape["reason"] = self.reason
        return shape


def rejudge(process: Process, answer: StoredAnswer) -> Comparison:
    """What today's schemas and rules say; no model is asked."""
    step = answer.step or process.first_model_step
    if answer.raw is None or answer.cut_off:
        reason = "the answer was cut off" if answer.cut_off else "there is no answer"
        return Comparison(answer, step, "not_judged", reason=reason)
    try:
        now = _judged(process, step, answer)
    except (ProcessError, GateError) as error:
        return Comparison(answer, step, "not_judged", reason=str(error))
    return Comparison(answer, step, _change(answer.old, now, len(process.steps)), now)


def _judged(process: Process, step: str, answer: StoredAnswer) -> Verdict:
    gate = process.gate(step)
    record = dict(answer.input)
    amend = process.assignments(step, record)
    if isinstance(answer.raw, str):
        return gate.judge(answer.raw, record, amend, unit_id=answer.unit_id)
    return gate.judge_value(answer.raw, record, amend, unit_id=answer.unit_id)


def _change(old: OldVerdict | None, now: Verdict, steps: int) -> Change:
    if old is None:
        return "no_verdict"
    if old.accepted != now.accepted:
        return "accepted" if now.accepted else "rejected"
    if now.accepted:
        unknown = old.output is None or (old.is_result and steps > 1)
        return "none" if unknown or same(old.output, now.value) else "value"
    return (
        "none" if (old.stage, _named(old.errors)) == (now.stage, _named(now.errors)) else "errors"
    )


def _named(errors: list[Problem]) -> list[tuple[str, str, str]]:
    return sorted((error["path"], error["rule"], error["message"]) for error in errors)


def _shown(accepted: bool, stage: str | None, errors: list[Problem]) -> dict[str, Any]:
    return {"accepted": accepted, "stage": stage, "errors": errors}


class BadRecord(ValueError):
    """A record that is no failure record; the message says why."""


def from_failure(line: str, file_step: str | None) -> StoredAnswer:
    """The answer in a line of `{step}_failures.jsonl` (SPEC S4.5); BadRecord where it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"no JSON: {error}") from None
    if not isinstance(record, dict) or "failure_stage" not in record:
        raise BadRecord("no failure record: it has no failure_stage")
    given, errors = record.get("input"), record.get("errors")
    if not isinstance(given, dict) or not isinstance(errors, list):
        raise BadRecord("no failure record: input is no object, or errors no array")
    metadata = record.get("_metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    problems = [_problem(error) for error in errors]
    unit = record.get("unit_id")
    return StoredAnswer(
        unit_id=None if unit is None else str(unit),
        request_id=_text(metadata.get("request_id")),
        step=_text(metadata.get("step")) or file_step,
        input=given,
        raw=record.get("raw_response"),
        old=OldVerdict(False, _text(record["failure_stage"]), problems),
        cut_off=any(error["rule"] in _NOT_WHOLE for error in problems),
    )


def _problem(error: Any) -> Problem:
    fields = error if isinstance(error, dict) else {}
    return problem(*(str(fields.get(name, "")) for name in ("path", "rule", "message")))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
