"""What follows an accepted answer: the next step's request, or the process's result. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from assay.events import (
    FieldError,
    GenerationAccepted,
    GenerationAnswered,
    GenerationRejected,
    GenerationRequested,
    InternalEvent,
    Meta,
    WalletScoreValidated,
)
from assay.events.wallet import FallbackReason
from assay_gate import Verdict
from assay_gate.chain import Ask, Failed, next_request
from assay_gate.process import Process
from services.validator.domain.judgement import may_be_signed, step_of, unit_of

Published: TypeAlias = list[tuple[str, InternalEvent]]
"""Events with the topics they go to, in order."""


def accepted_events(
    answered: GenerationAnswered, meta: Meta, process: Process, verdict: Verdict
) -> Published:
    """The step's answer and what it leads to (SPEC S4.12); `meta` names the answer as the cause.

    A shadow's score, or an unsealed one, is a recorded answer like any other: only
    `wallet.score.validated.v1` leads to the signer.
    """
    step, unit = step_of(answered), unit_of(answered)
    found = next_request(process, meta, answered.input, step, verdict.value, unit)
    if isinstance(found, Ask):
        request = GenerationRequested(meta=found.meta, input=found.input)
        accepted = _accepted(answered, meta, verdict, verdict.value, final=False)
        return [*accepted, (GenerationRequested.type, request)]
    if isinstance(found, Failed):
        accepted = _accepted(answered, meta, verdict, verdict.value, final=False)
        return [*accepted, (GenerationRejected.type, failed_step(found, meta, unit))]
    if may_be_signed(answered, process):
        score = validated_score(answered, meta, verdict.value, repairs=verdict.repairs)
        return [(WalletScoreValidated.type, score)]
    return _accepted(answered, meta, verdict, found.output, final=True)


def validated_score(
    answered: GenerationAnswered,
    meta: Meta,
    score: Mapping[str, Any],
    *,
    repairs: list[Any] | None = None,
    fallback: FallbackReason | None = None,
) -> WalletScoreValidated:
    """The score that may be signed, the model's or the fallback's."""
    given = answered.input
    return WalletScoreValidated.model_validate(
        {
            "meta": meta,
            "address": given["address"],
            "score": score["score"],
            "scoreBreakdown": score["scoreBreakdown"],
            "reasoning": score["reasoning"],
            "risk_factors": score["risk_factors"],
            "strengths": score["strengths"],
            "fallback": fallback,
            "attempts": meta.attempt,
            "model": answered.model if fallback is None else None,
            "evm_source": given["evm_source"],
            "evm_sha256": given["evm_sha256"],
            "repairs": [dict(repair) for repair in repairs or ()],
        }
    )


def _accepted(
    answered: GenerationAnswered, meta: Meta, verdict: Verdict, output: Any, *, final: bool
) -> Published:
    event = GenerationAccepted(
        meta=meta,
        input=answered.input,
        output=output,
        repairs=[dict(repair) for repair in verdict.repairs],
        attempts=meta.attempt,
        model=answered.model,
        final=final,
    )
    return [(GenerationAccepted.type, event)]


def failed_step(failed: Failed, meta: Meta, unit: str) -> GenerationRejected:
    """The end at a step behind the answer: a repeat of it would fail as well."""
    return GenerationRejected(
        meta=meta.model_copy(update={"step": failed.step, "attempt": 1}),
        terminal=True,
        unit_id=unit,
        failure_stage="pipeline_internal",
        input=failed.input,
        raw_response=None,
        errors=[FieldError.model_validate(dict(error)) for error in failed.errors],
        retry_count=0,
        ends_as="rejected",
    )
