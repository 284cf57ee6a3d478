"""Serving accepted answers again, for processes that allow it (seed 5; `assay.cache`).

An answer is kept only once the step's gate accepted it here, which is found out beside the
handling of requests; whatever is served passes the validator again like any other answer. What is
kept lives in the memory of this replica alone and is gone with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from assay.events import GenerationAnswered
from services.scorer.domain.answer_cache import (
    AnswerCache,
    KeptAnswer,
    accepted_now,
    may_be_served,
    question_name,
    served_fields,
)
from services.scorer.domain.provider import Provider
from services.scorer.domain.question import Question

log = structlog.get_logger()

# Questions of processes that allow it, and what became of the answers to those that were asked.
CACHE = Counter(
    "assay_answer_cache_total", "served, missed; then kept, refused or skipped", ["outcome"]
)
CACHE_BYTES = Gauge("assay_answer_cache_bytes", "What the kept answers take")

_MOST_WAITING = 256
_Offer = tuple[Question, GenerationAnswered, str]


class AcceptedAnswers:
    """The cache with its judge. `clock` is monotonic, in seconds."""

    def __init__(
        self, cache: AnswerCache, provider: Provider, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cache = cache
        self._provider = provider
        self._clock = clock
        self._offers: asyncio.Queue[_Offer] = asyncio.Queue(_MOST_WAITING)

    def served(self, question: Question) -> dict[str, Any] | None:
        """The answered event's fields from an accepted answer to this very question of this very
        tenant; None where a model is to be asked."""
        caching = question.process.caching
        if caching is None or not may_be_served(question):
            return None
        digest = self._provider.model_digest
        kept = None
        if digest is not None:
            name = self._name(question, digest)
            kept = self._cache.find(name, self._clock(), caching.max_age_s)
        CACHE.labels("missed" if kept is None else "served").inc()
        return None if kept is None else served_fields(question, self._provider.name, kept)

    def offer(self, question: Question, answered: GenerationAnswered, event_id: str) -> None:
        """Keep what the model answered, standing in event `event_id`, if it proves good; not
        while too many wait to be judged."""
        if answered.outcome != "answered" or not may_be_served(question):
            return
        try:
            self._offers.put_nowait((question, answered, event_id))
        except asyncio.QueueFull:
            CACHE.labels("skipped").inc()

    async def judge(self) -> None:
        """Judges what is offered, for as long as it is let."""
        while True:
            await self.judge_next()

    async def judge_next(self) -> None:
        """Judges the next offer, in a thread because rules may take their whole time limit."""
        question, answered, event_id = await self._offers.get()
        try:
            accepted = await asyncio.to_thread(accepted_now, question, answered.raw or "")
        except Exception:
            log.exception("cache_judge_failed", process=question.process.id)
            accepted = False
        if accepted:
            self._keep(question, answered, event_id)
        CACHE.labels("kept" if accepted else "refused").inc()

    def _keep(self, question: Question, answered: GenerationAnswered, event_id: str) -> None:
        digest = answered.model_digest or ""
        answer = KeptAnswer(
            event_id, answered.raw or "", answered.model, digest, answered.finish_reason,
            self._clock(),
        )  # fmt: skip
        self._cache.keep(self._name(question, digest), answer)
        CACHE_BYTES.set(self._cache.bytes)

    def _name(self, question: Question, digest: str) -> str:
        return question_name(question, self._provider.name, self._provider.model, digest)
