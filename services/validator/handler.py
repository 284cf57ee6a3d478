"""Answered to validated, retried or rejected: judge, decide, publish."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from prometheus_client import Counter, Histogram

from assay.envelope import Message, emit
from assay.events import (
    EvidenceRecordSubmitted,
    FieldError,
    GenerationAccepted,
    GenerationAnswered,
    GenerationRejected,
    GenerationRequested,
    InternalEvent,
    WalletScoreValidated,
)
from assay_gate import Verdict
from assay_gate.process import Process
from assay_runtime.failures import DeadLetter
from assay_runtime.records import Delivery
from services.validator.domain.fallback import fallback_score
from services.validator.domain.judgement import Endings, judge, next_step
from services.validator.settings import ValidatorSection

log = structlog.get_logger()

SOURCE = "/assay/validator"
RETRIED = "llm.generation.retried.v1"

# What the gate takes for one answer (SPEC S5.6); buckets lie around its bound of 5 ms.
GATE_SECONDS = Histogram(
    "assay_gate_seconds",
    "Judging one answer",
    ["process"],
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25),
)
# Answers by what became of them.
ANSWERS = Counter("assay_answers_total", "Answers judged", ["process", "verdict"])


class ValidatorHandler:
    """Pure function of an answered event and the process that its recorded hash names."""

    def __init__(self, processes: Mapping[str, Process], section: ValidatorSection) -> None:
        self._by_hash = {process.hash: process for process in processes.values()}
        self._endings = Endings(section.on_provider_unavailable, section.on_answers_rejected)

    def __call__(self, delivery: Delivery[GenerationAnswered]) -> Sequence[Message]:
        answered = delivery.event
        meta = answered.meta
        process = self._by_hash.get(meta.process_hash or "")
        if process is None:
            raise DeadLetter(
                f"no process {meta.process_id} {meta.process_version} with hash "
                f"{meta.process_hash} is known here",
                code="process_unknown",
                request_id=meta.request_id,
            )
        started = time.perf_counter()
        verdict = judge(answered, process)
        GATE_SECONDS.labels(process.id).observe(time.perf_counter() - started)
        events = self._events(delivery, process, verdict)
        ANSWERS.labels(process.id, "accepted" if verdict.accepted else verdict.stage).inc()
        log.info(
            "answer_judged",
            request_id=meta.request_id,
            trace_id=delivery.span.trace_id,
            process=process.id,
            attempt=meta.attempt,
            accepted=verdict.accepted,
            stage=verdict.stage,
            rules=[error["rule"] for error in verdict.errors][:5],
            repairs=len(verdict.repairs),
        )
        return [
            emit(event, topic=topic, source=SOURCE, parent_id=delivery.id)
            for topic, event in events
        ]

    def _events(
        self, delivery: Delivery[GenerationAnswered], process: Process, verdict: Verdict
    ) -> list[tuple[str, InternalEvent]]:
        answered = delivery.event
        if verdict.accepted:
            return [_accepted(delivery, process, verdict)]
        step = next_step(answered, process, self._endings)
        errors = [FieldError.model_validate(dict(error)) for error in verdict.errors]
        meta = answered.meta.caused_by(delivery.id, delivery.value)
        rejected = GenerationRejected(
            meta=meta,
            terminal=step.retry is None,
            unit_id=meta.unit_id or meta.request_id,
            failure_stage=verdict.stage or "pipeline_internal",
            input=answered.input,
            raw_response=answered.raw,
            errors=errors,
            retry_count=meta.attempt - 1,
            reason=step.reason,
            ends_as=step.ends_as,
        )
        events: list[tuple[str, InternalEvent]] = [(GenerationRejected.type, rejected)]
        if step.retry is not None:
            retry = GenerationRequested(
                meta=meta.model_copy(update={"attempt": step.retry}),
                input=answered.input,
                feedback=errors,
            )
            return [*events, (RETRIED, retry)]
        if step.ends_as == "rejected":
            return events
        record = EvidenceRecordSubmitted(
            meta=meta,
            record="SCORE_FALLBACK" if step.ends_as == "fallback_score" else "SCORE_WITHHELD",
            payload={"reason": step.reason, "attempts": meta.attempt},
        )
        events.append((EvidenceRecordSubmitted.type, record))
        if step.ends_as == "fallback_score":
            score = fallback_score(answered.input.get("features"))
            events.append(_validated(delivery, score, fallback=step.reason, verdict=None))
        return events


def _accepted(
    delivery: Delivery[GenerationAnswered], process: Process, verdict: Verdict
) -> tuple[str, InternalEvent]:
    if process.result == WalletScoreValidated.type:
        return _validated(delivery, verdict.value, fallback=None, verdict=verdict)
    answered = delivery.event
    accepted = GenerationAccepted(
        meta=answered.meta.caused_by(delivery.id, delivery.value),
        input=answered.input,
        output=verdict.value,
        repairs=[dict(repair) for repair in verdict.repairs],
        attempts=answered.meta.attempt,
        model=answered.model,
    )
    return GenerationAccepted.type, accepted


def _validated(
    delivery: Delivery[GenerationAnswered],
    score: Mapping[str, Any],
    *,
    fallback: str | None,
    verdict: Verdict | None,
) -> tuple[str, InternalEvent]:
    """The score that may be signed, the model's or the fallback's."""
    answered = delivery.event
    given = answered.input
    event = WalletScoreValidated.model_validate(
        {
            "meta": answered.meta.caused_by(delivery.id, delivery.value),
            "address": given["address"],
            "score": score["score"],
            "scoreBreakdown": score["scoreBreakdown"],
            "reasoning": score["reasoning"],
            "risk_factors": score["risk_factors"],
            "strengths": score["strengths"],
            "fallback": fallback,
            "attempts": answered.meta.attempt,
            "model": answered.model if fallback is None else None,
            "evm_source": given["evm_source"],
            "evm_sha256": given["evm_sha256"],
            "repairs": [dict(repair) for repair in verdict.repairs] if verdict else [],
        }
    )
    return WalletScoreValidated.type, event
