"""The verdict on an answered event. Pure."""

from __future__ import annotations

from assay.events import GenerationAnswered
from assay_gate import Verdict
from assay_gate.process import Process
from assay_gate.process_endings import SCORE_RESULT

# Finish reasons that mean a whole answer; a cut-off one is never repaired (DESIGN §5).
_WHOLE = (None, "stop", "unknown", "eos", "eos_token", "end_turn", "stop_sequence")


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
    step, unit_id = step_of(answered), unit_of(answered)
    return process.gate(step).judge(
        answered.raw,
        context=answered.input | {"unit_id": unit_id},
        amend=process.assignments(step, answered.input),
        unit_id=unit_id,
    )


def step_of(answered: GenerationAnswered) -> str:
    """The step that was answered; the scorer always names it."""
    return answered.meta.step or ""


def unit_of(answered: GenerationAnswered) -> str:
    """The unit that was asked about; seeds chance in rules and expression steps."""
    return answered.meta.unit_id or answered.meta.request_id


def is_shadow(answered: GenerationAnswered, process: Process) -> bool:
    """Whether it only runs beside: by the request's mark, or because the process is one."""
    return answered.meta.shadow or process.shadow is not None


def may_be_signed(answered: GenerationAnswered, process: Process) -> bool:
    """Whether a score may come of it: its process makes scores, it is no shadow, and a service
    asked for it. Whoever else may write `llm.generation.requested.v1` could invent the input."""
    score = process.result == SCORE_RESULT
    return score and not is_shadow(answered, process) and not answered.meta.unsealed


def _no_answer(rule: str, message: str) -> Verdict:
    return Verdict(
        accepted=False,
        stage="pipeline_internal",
        errors=[{"path": "$", "rule": rule, "message": message}],
    )
