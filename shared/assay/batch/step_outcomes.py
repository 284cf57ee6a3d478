"""What a record on the bus says about a step of one request. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from assay.envelope import text_headers
from assay.events import GenerationAccepted, GenerationRejected, WalletScoreValidated
from assay.topics import catalogue

ACCEPTED = GenerationAccepted.type
REJECTED = GenerationRejected.type
VALIDATED = WalletScoreValidated.type
DEAD_LETTERS = tuple(
    topic.name for topic in catalogue().dead_letters() if topic.event.startswith("llm.generation.")
)
OUTCOME_TOPICS = (ACCEPTED, REJECTED, VALIDATED, *DEAD_LETTERS)
# The request named a process that is not there: the batch's mistake, not the unit's.
_NO_PROCESS = ("unknown_process", "unknown_process_version", "process_unknown")
_SCORE = ("score", "scoreBreakdown", "reasoning", "risk_factors", "strengths")


class NoProcess(Exception):
    """The services know no process of the batch's name."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """A step of a request ended. `failure` is None where its answer is valid; `last` when nothing
    follows. `step` and `input` are None where the record does not tell. `began` is False where
    the request was refused before a step."""

    request_id: str
    step: str | None
    last: bool
    input: dict[str, Any] | None
    output: Any = None
    failure: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    began: bool = True


def named_request(headers: Collection[tuple[str, bytes | None]]) -> str | None:
    """The request a record belongs to, by its headers alone."""
    text = text_headers(headers)
    return text.get("assay.request.id") or text.get("ce_requestid")


def read_step_outcome(
    topic: str, value: bytes, headers: Collection[tuple[str, bytes | None]]
) -> StepOutcome | None:
    """What the record says, or None where the step goes on.

    ValueError where it is not what its topic promises, NoProcess for a dead letter that no unit
    is to blame for.
    """
    if topic == ACCEPTED:
        return _accepted(GenerationAccepted.model_validate_json(value))
    if topic == VALIDATED:
        return _validated(WalletScoreValidated.model_validate_json(value))
    if topic == REJECTED:
        return _rejected(GenerationRejected.model_validate_json(value))
    return _dead(value, text_headers(headers))


def _accepted(event: GenerationAccepted) -> StepOutcome | None:
    if event.fallback is not None:
        return None  # its rejection is the outcome
    return StepOutcome(
        event.meta.request_id,
        event.meta.step,
        last=event.final,
        input=event.input,
        output=event.output,
        metadata=_metadata(event, attempts=event.attempts, repairs=event.repairs),
    )


def _validated(event: WalletScoreValidated) -> StepOutcome | None:
    if event.fallback is not None:
        return None  # its rejection is the outcome
    score = event.model_dump(include=set(_SCORE))
    return StepOutcome(
        event.meta.request_id,
        event.meta.step,
        last=True,
        input=None,
        output=score,
        metadata=_metadata(event, attempts=event.attempts, repairs=event.repairs),
    )


def _rejected(event: GenerationRejected) -> StepOutcome | None:
    if not event.terminal:
        return None
    failure = {
        "failure_stage": event.failure_stage,
        "raw_response": event.raw_response,
        "errors": [error.model_dump(include={"path", "rule", "message"}) for error in event.errors],
        "retry_count": event.retry_count,
    }
    ends_as = "empty_result" if event.empty_result else event.ends_as
    metadata = _metadata(event, reason=event.reason, ends_as=ends_as)
    return StepOutcome(
        event.meta.request_id, event.meta.step, last=True, input=event.input, failure=failure,
        metadata=metadata,
    )  # fmt: skip


def _metadata(
    event: GenerationAccepted | GenerationRejected | WalletScoreValidated, **more: Any
) -> dict[str, Any]:
    meta = event.meta
    return {
        "process_version": meta.process_version,
        "process_hash": meta.process_hash,
        **({"model": event.model} if not isinstance(event, GenerationRejected) else {}),
        **more,
    }


def _dead(value: bytes, headers: dict[str, str]) -> StepOutcome | None:
    """A dead letter holds the record as it was: its step, input and raw answer where readable."""
    request = headers.get("assay.request.id") or headers.get("ce_requestid")
    if not request:
        return None
    code = headers.get("assay.error.code", "unknown")
    message = headers.get("__connect.errors.exception.message", "no reason recorded")
    if code in _NO_PROCESS:
        raise NoProcess(message)
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        document = None
    document = document if isinstance(document, dict) else {}
    meta = document.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    given, raw, attempt = document.get("input"), document.get("raw"), meta.get("attempt")
    path = headers.get("assay.error.pointer", "").replace("/", ".")
    failure = internal_failure("$" + path, code, message)
    failure["raw_response"] = raw if isinstance(raw, str) else None
    failure["retry_count"] = attempt - 1 if isinstance(attempt, int) else 0
    step = meta.get("step")
    return StepOutcome(
        request,
        step if isinstance(step, str) else None,
        last=True,
        input=given if isinstance(given, dict) else None,
        failure=failure,
        metadata={"reason": "dead_lettered"},
        began=isinstance(step, str),
    )


def internal_failure(path: str, rule: str, message: str) -> dict[str, Any]:
    """The judgement part of a failure that no answer is to blame for (SPEC S4.2)."""
    return {
        "failure_stage": "pipeline_internal",
        "raw_response": None,
        "errors": [{"path": path, "rule": rule, "message": message}],
        "retry_count": 0,
    }
