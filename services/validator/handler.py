"""Answered to accepted, retried or rejected: judge, decide, publish."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import structlog
from prometheus_client import Counter, Histogram

from assay.envelope import Message, emit
from assay.events import GenerationAnswered, GenerationRequested
from assay_gate.chain import computes_after
from assay_gate.process import Process
from assay_gate.process_registry import ProcessRegistry
from assay_gate.rules.ruleset import WorkerNeeded, without_worker
from assay_runtime.failures import DeadLetter
from assay_runtime.records import Delivery
from assay_runtime.seals import TRUSTING, Seals
from assay_runtime.stage import Outcome
from services.validator.domain.endings import Overrides
from services.validator.domain.fitting import Sized, following
from services.validator.domain.judgement import is_shadow, judge, step_of
from services.validator.settings import ValidatorSection

log = structlog.get_logger()

SOURCE = "/assay/validator"
# A batch that computes for longer says so, lest it be taken for a stall: each of its units may take
# the expression worker's whole time limit.
_LONG_S = 5.0

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
    """Called with one answered event it is a pure function of it and of the process that its
    recorded hash names, kept versions and shadows included."""

    def __init__(
        self, processes: ProcessRegistry, section: ValidatorSection, seals: Seals = TRUSTING
    ) -> None:
        self._processes = processes
        self._seals = seals
        self._overrides = Overrides(section.on_provider_unavailable, section.on_answers_rejected)
        self._computing: tuple[str, float] | None = None

    async def handle(
        self, deliveries: Sequence[Delivery[GenerationAnswered]], /
    ) -> Sequence[Outcome]:
        """The runtime's handler: outcomes in the order of the deliveries."""
        try:
            return [await self._outcome(delivery) for delivery in deliveries]
        finally:
            self._computing = None

    def waiting(self) -> str | None:
        """Whose expressions this batch has been computing for long; None: nobody's."""
        if self._computing is None or time.monotonic() - self._computing[1] < _LONG_S:
            return None
        return f"expressions of process {self._computing[0]} take long"

    async def _outcome(self, delivery: Delivery[GenerationAnswered]) -> Outcome:
        """Expression steps and the rules that need the worker are computed in a thread, because it
        may take its whole time limit; everything else takes less than a thread costs."""
        try:
            process = self._process_of(delivery)
            if not computes_after(process, step_of(delivery.event)):
                with contextlib.suppress(WorkerNeeded):
                    return without_worker(self, delivery)
            self._computing = self._computing or (process.id, time.monotonic())
            return await asyncio.to_thread(self, delivery)
        except DeadLetter as reason:
            return reason

    def __call__(self, delivery: Delivery[GenerationAnswered]) -> Sequence[Message]:
        answered = delivery.event
        process = self._process_of(delivery)
        started = time.perf_counter()
        verdict = judge(answered, process)
        GATE_SECONDS.labels(process.id).observe(time.perf_counter() - started)
        meta = answered.meta.caused_by(delivery.id, delivery.value)
        if is_shadow(answered, process):
            meta = meta.model_copy(update={"shadow": True})
        verdict, follows = following(answered, meta, process, verdict, self._overrides)
        ANSWERS.labels(process.id, "accepted" if verdict.accepted else verdict.stage).inc()
        log.info(
            "answer_judged",
            request_id=meta.request_id,
            trace_id=delivery.span.trace_id,
            process=process.id,
            step=meta.step,
            attempt=meta.attempt,
            shadow=meta.shadow,
            unsealed=meta.unsealed,
            accepted=verdict.accepted,
            stage=verdict.stage,
            rules=[error["rule"] for error in verdict.errors][:5],
            repairs=len(verdict.repairs),
            follows=[made.topic for made in follows],
        )
        return [self._message(made, delivery.id) for made in follows]

    def _message(self, made: Sized, parent_id: str) -> Message:
        """A request is sealed where the one that led to it was: what a client asked for is not
        the services' own after one answer."""
        event = made.event
        message = emit(
            event, topic=made.topic, source=SOURCE, parent_id=parent_id, value=made.value
        )
        own = isinstance(event, GenerationRequested) and not event.meta.unsealed
        return self._seals.put(message) if own else message

    def _process_of(self, delivery: Delivery[GenerationAnswered]) -> Process:
        meta = delivery.event.meta
        process = self._processes.by_hash(meta.process_hash or "")
        if process is None:
            raise DeadLetter(
                f"no process {meta.process_id} {meta.process_version} with hash "
                f"{meta.process_hash} is known here",
                code="process_unknown",
                request_id=meta.request_id,
            )
        if step_of(delivery.event) not in (s.name for s in process.steps if s.kind == "model"):
            raise DeadLetter(
                f"process {process.id} {process.version} asks no model at step {meta.step!r}",
                code="step_unknown",
                pointer="/meta/step",
                request_id=meta.request_id,
            )
        return process
