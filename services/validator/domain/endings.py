"""What follows a refused answer: another attempt, or the end that the process chose. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from assay.events import (
    EvidenceRecordSubmitted,
    FieldError,
    GenerationAccepted,
    GenerationAnswered,
    GenerationRejected,
    GenerationRequested,
    Meta,
    WalletScoreValidated,
)
from assay.events.wallet import FallbackReason
from assay_gate import Verdict
from assay_gate.chain import EXPRESSION_FAILED
from assay_gate.process import Process
from assay_gate.process_endings import SCORE_RESULT
from services.validator.domain.acceptance import Published, validated_score
from services.validator.domain.fallback import fallback_score
from services.validator.domain.judgement import may_be_signed, step_of, unit_of

RETRIED = "llm.generation.retried.v1"

EndsAs = Literal["fallback_score", "withheld", "rejected", "empty_result"]
Override = Literal["process", "fallback_score", "withhold"]


@dataclass(frozen=True, slots=True)
class Overrides:
    """What an operator sets instead of the processes' own endings, for scores (SPEC S3.6)."""

    provider_unavailable: Override = "process"
    answers_rejected: Override = "process"


@dataclass(frozen=True, slots=True)
class Consequence:
    """The number of the next attempt, or how the request ends, and why if attempts ran out."""

    retry: int | None = None
    reason: FallbackReason | None = None
    ends_as: EndsAs | None = None


def consequence(
    answered: GenerationAnswered, process: Process, overrides: Overrides, *, last: bool = False
) -> Consequence:
    """Retry while attempts are left; an endpoint that is away is not asked again (SPEC S1.5), and
    an expression step before the question would fail again. `last`: no further attempt can be
    asked."""
    if answered.error is not None and answered.error.code == EXPRESSION_FAILED:
        return Consequence(ends_as="rejected")
    reason: FallbackReason = "answers_rejected"
    if answered.outcome == "unavailable":
        reason = "provider_unavailable"
    elif not last and answered.meta.attempt < process.attempts_of(step_of(answered)):
        return Consequence(retry=answered.meta.attempt + 1)
    policy: str = process.exhausted.get(reason, "reject")
    if process.result != SCORE_RESULT:
        return Consequence(
            reason=reason, ends_as="empty_result" if policy == "empty_result" else "rejected"
        )
    if not may_be_signed(answered, process):
        return Consequence(reason=reason, ends_as="rejected")
    override: Override = getattr(overrides, reason)
    policy = policy if override == "process" else override
    return Consequence(
        reason=reason, ends_as="fallback_score" if policy == "fallback_score" else "withheld"
    )


def rejected_events(
    answered: GenerationAnswered,
    meta: Meta,
    process: Process,
    verdict: Verdict,
    follows: Consequence,
) -> Published:
    """The refusal first, then what comes of it; `meta` names the answer as the cause."""
    errors = [FieldError.model_validate(dict(error)) for error in verdict.errors]
    rejected = GenerationRejected(
        meta=meta,
        terminal=follows.retry is None,
        unit_id=unit_of(answered),
        failure_stage=verdict.stage or "pipeline_internal",
        input=answered.input,
        raw_response=answered.raw,
        errors=errors,
        retry_count=meta.attempt - 1,
        reason=follows.reason,
        ends_as="rejected" if follows.ends_as == "empty_result" else follows.ends_as,
        empty_result=follows.ends_as == "empty_result",
    )
    events: Published = [(GenerationRejected.type, rejected)]
    if follows.retry is not None:
        again = meta.model_copy(update={"attempt": follows.retry})
        retry = GenerationRequested(meta=again, input=answered.input, feedback=errors)
        return [*events, (RETRIED, retry)]
    if follows.ends_as == "empty_result":
        empty = GenerationAccepted(
            meta=meta,
            input=answered.input,
            output=process.empty_result,
            attempts=meta.attempt,
            model=None,
            fallback=follows.reason,
        )
        return [*events, (GenerationAccepted.type, empty)]
    if follows.ends_as in ("fallback_score", "withheld"):
        record = EvidenceRecordSubmitted(
            meta=meta,
            record="SCORE_FALLBACK" if follows.ends_as == "fallback_score" else "SCORE_WITHHELD",
            payload={"reason": follows.reason, "attempts": meta.attempt},
        )
        events.append((EvidenceRecordSubmitted.type, record))
    if follows.ends_as == "fallback_score":
        score = fallback_score(answered.input.get("features"))
        fallback = validated_score(answered, meta, score, fallback=follows.reason)
        events.append((WalletScoreValidated.type, fallback))
    return events
