"""Scorer: generation requests in, retried ones first; answers out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from prometheus_client import Gauge

from assay.envelope import Message
from assay.events import GenerationAnswered, GenerationRequested
from assay_gate.process_endings import SCORE_RESULT
from assay_runtime.failures import Stop
from assay_runtime.pipeline import Pipeline
from assay_runtime.processes import read_registry
from assay_runtime.records import event_decoder
from assay_runtime.seals import Seals
from assay_runtime.service import Service
from services.scorer.accepted_answers import AcceptedAnswers
from services.scorer.adapters.assembly import build_endpoint, build_provider, call_limits
from services.scorer.adapters.endpoint import Endpoint
from services.scorer.adapters.format_canary import FormatIgnored, check_format
from services.scorer.answers import AnswerMessages
from services.scorer.domain.answer_cache import AnswerCache
from services.scorer.domain.availability import State
from services.scorer.domain.bounded import Bounded
from services.scorer.handler import ScorerHandler
from services.scorer.seal_check import SealCheck
from services.scorer.settings import ScorerSettings

NAME = "scorer"
RETRIED = "llm.generation.retried.v1"
CONSUMES = (RETRIED, GenerationRequested.type)
PRODUCES = (GenerationAnswered.type,)
_MB = 1 << 20

# 1 for the state the model endpoint is in.
ENDPOINT_STATE = Gauge("assay_model_endpoint_state", "1 for the present state", ["state"])


def build(settings: ScorerSettings) -> Service:
    """The service from its settings."""
    section = settings.scorer
    provider = build_provider(section)
    endpoint = build_endpoint(section, provider, _show_state)
    _show_state(State.CLOSED)
    processes = read_registry(section.processes, "ASSAY_SCORER__PROCESSES")
    handler = ScorerHandler(processes, endpoint, call_limits(section))
    cache = AnswerCache(section.cache_entries, section.cache_mb * _MB)
    accepted = AcceptedAnswers(cache, provider)
    remembered: Bounded[Message] = Bounded(section.answers_kept, section.answers_kept_mb * _MB)
    scoring = {process.id for process in processes if process.result == SCORE_RESULT}
    seal_check = SealCheck(Seals.of(settings.seals), scoring)
    seal_check.announce()

    def waiting() -> str | None:
        if endpoint.state is not State.OPEN:
            return None
        return f"model {provider.model} at {section.url} is away"

    async def canary() -> None:
        try:
            await check_format(provider, section.canary)
        except FormatIgnored as ignored:
            raise Stop(str(ignored)) from ignored
        await asyncio.Event().wait()  # background work lasts as long as the service

    return Service(
        name=NAME,
        pipelines=[
            Pipeline(
                name=NAME,
                topics=CONSUMES,
                decode=event_decoder(GenerationRequested),
                handler=AnswerMessages(handler, accepted, remembered, seal_check),
                engine="lane",
                slots=section.slots,
                first=frozenset({RETRIED}),
                waiting=waiting,
                # Any client may ask for any process; rubbish there is the clients'.
                dead_letter_limit=False,
            )
        ],
        resources=[_closed_at_end(endpoint)],
        background=[canary, accepted.judge],
        drain_s=section.deadline_s + 1,
    )


def _show_state(now: State) -> None:
    for state in State:
        ENDPOINT_STATE.labels(state.value).set(state is now)


@contextlib.asynccontextmanager
async def _closed_at_end(endpoint: Endpoint) -> AsyncIterator[Endpoint]:
    try:
        yield endpoint
    finally:
        await endpoint.aclose()
