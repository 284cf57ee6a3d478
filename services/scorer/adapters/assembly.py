"""The endpoint and the call limits that the settings describe."""

from __future__ import annotations

from collections.abc import Callable

from services.scorer.adapters.endpoint import Endpoint
from services.scorer.adapters.llm_ollama import OllamaProvider
from services.scorer.adapters.llm_openai import OpenAIProvider
from services.scorer.adapters.model_http import ModelHttp
from services.scorer.domain.answering import CallLimits
from services.scorer.domain.availability import Policy, State
from services.scorer.domain.provider import Provider
from services.scorer.settings import ScorerSection


def build_provider(settings: ScorerSection) -> Provider:
    """The provider named in the settings; nothing is connected yet."""
    http = ModelHttp(
        settings.url.rstrip("/").removesuffix("/v1").removesuffix("/api"),
        api_key=settings.api_key.get_secret_value(),
        connections=settings.slots,
        attempts=settings.transport_attempts,
        max_response_bytes=settings.max_response_bytes,
    )
    if settings.provider == "openai":
        return OpenAIProvider(
            http,
            settings.model,
            probe_deadline_s=settings.deadline_s,
            probe_num_ctx=settings.num_ctx,
        )
    return OllamaProvider(
        http,
        settings.model,
        keep_alive=settings.keep_alive,
        think=settings.think,
        probe_deadline_s=settings.deadline_s,
        probe_num_ctx=settings.num_ctx,
    )


def build_endpoint(
    settings: ScorerSection,
    provider: Provider,
    on_state: Callable[[State], None] = lambda state: None,
) -> Endpoint:
    """The endpoint around a provider."""
    policy = Policy(
        failures_to_open=settings.failures_to_open,
        suspicions_to_open=settings.suspicions_to_open,
        patience_s=settings.patience_s,
        probe_initial_s=settings.probe_initial_s,
        probe_max_s=settings.probe_max_s,
    )
    return Endpoint(provider, policy, slots=settings.slots, on_state=on_state)


def call_limits(settings: ScorerSection) -> CallLimits:
    """What every call is bounded by."""
    return CallLimits(settings.max_tokens, settings.num_ctx, settings.deadline_s)
