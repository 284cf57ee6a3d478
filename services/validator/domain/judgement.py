"""The verdict on an answered event, and what follows from a rejection. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from assay.events import GenerationAnswered
from assay_gate import Verdict
from assay_gate.process import Process

Reason = Literal["provider_unavailable", "answers_rejected"]
EndsAs = Literal["fallback_score", "withheld", "rejected"]
Ending = Literal["process", "fallback_score", "withhold"]

# Finish reasons that mean a whole answer; a cut-off one is never repaired (DESIGN §5).
_WHOLE = (None, "stop", "unknown", "eos", "eos_token", "end_turn", "stop_sequence")


@dataclass(frozen=True, slots=True)
class Endings:
    """What an operator overrides of the processes' own endings (SPEC S3.6)."""

    provider_unavailable: Ending = "process"
    answers_rejected: Ending = "process"


@dataclass(frozen=True, slots=True)
class NextStep:
    """After a rejection: the number of the next attempt, or how and why the request ends."""

    retry: int | None = None
    reason: Reason | None = None
    ends_as: EndsAs | None = None


def judge(answered: GenerationAnswered, process: Process) -> Verdict:
    """The gate's verdict; an attempt that brought no whole answer fails as pipeline_internal."""
    if answered.outcome != "answered" or answered.raw is None:
        error = answered.error
        code = error.code if error else answered.outcome
        return _no_answer(code, error.message if error else "the model gave no answer")
    if answered.finish_reason not in _WHOLE:
        return _no_answer(
            "finish_reason",
            f"the answer was cut off ({answered.finish_reason}): answer more briefly",
        )
    step = _step(answered, process)
    return process.gate(step).judge(
        answered.raw,
        context=answered.input,
        amend=process.assignments(step, answered.input),
        unit_id=answered.meta.unit_id,
    )


def _step(answered: GenerationAnswered, process: Process) -> str:
    return answered.meta.step or process.first_model_step


def _no_answer(rule: str, message: str) -> Verdict:
    return Verdict(
        accepted=False,
        stage="pipeline_internal",
        errors=[{"path": "$", "rule": rule, "message": message}],
    )


def next_step(answered: GenerationAnswered, process: Process, endings: Endings) -> NextStep:
    """Retry while attempts are left; an endpoint that is away is not asked again (SPEC S1.5)."""
    reason: Reason = "answers_rejected"
    if answered.outcome == "unavailable":
        reason = "provider_unavailable"
    elif answered.meta.attempt < process.attempts_of(_step(answered, process)):
        return NextStep(retry=answered.meta.attempt + 1)
    override = getattr(endings, reason)
    ending = process.exhausted.get(reason) if override == "process" else override
    if ending == "fallback_score" and process.result == "wallet.score.validated.v1":
        return NextStep(reason=reason, ends_as="fallback_score")
    if process.result == "wallet.score.validated.v1":
        return NextStep(reason=reason, ends_as="withheld")
    return NextStep(reason=reason, ends_as="rejected")
