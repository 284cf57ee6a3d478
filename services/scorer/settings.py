"""Settings of the scorer: `ASSAY_SCORER__<KEY>`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from assay_runtime.seals import SealsSection
from assay_runtime.settings import Section, Settings


class ScorerSection(Section):
    """The model endpoint and how patient the scorer is with it; times in seconds."""

    provider: Literal["ollama", "openai"] = "ollama"
    url: str = Field("http://127.0.0.1:11434", description="server, without /api or /v1")
    model: str = Field("llama3.1:8b", min_length=1)
    api_key: SecretStr = Field(SecretStr(""), description="bearer token; empty sends none")
    processes: str = Field("", description="folder of process folders; empty: those shipped")
    slots: int = Field(8, ge=1, le=4096, description="calls in flight to the endpoint")
    deadline_s: float = Field(120, gt=0, description="total time of one call, retries included")
    transport_attempts: int = Field(3, ge=1, le=10, description="on connect errors, 429, 502, 503")
    max_tokens: int = Field(1024, ge=16, description="longest answer where the process says none")
    num_ctx: int = Field(16_384, ge=1024, description="Ollama's context: prompt and answer")
    max_response_bytes: int = Field(262_144, ge=4096, le=1_048_576)
    keep_alive: str = Field("10m", description="how long Ollama keeps the model loaded")
    think: Literal["", "on", "off", "low", "medium", "high"] = Field(
        "", description="Ollama's thinking; empty: the model's default"
    )
    canary: Literal["warn", "refuse", "off"] = Field(
        "warn", description="when the backend ignores the schema it is sent"
    )
    patience_s: float = Field(300, gt=0, description="continuous outage before `unavailable`")
    failures_to_open: int = Field(3, ge=1, description="failures in a row that pause intake")
    suspicions_to_open: int = Field(5, ge=1, description="hangs or errors without any success")
    probe_initial_s: float = Field(1, gt=0, description="first wait before a probe; doubles")
    probe_max_s: float = Field(30, gt=0)
    answers_kept: int = Field(4096, ge=0, description="answers kept for redelivered requests")
    answers_kept_mb: int = Field(32, ge=0, description="and at most so much of them")
    cache_entries: int = Field(
        4096, ge=0, description="accepted answers served again, for processes that allow it"
    )
    cache_mb: int = Field(32, ge=0, description="and at most so much of them; per replica")


class ScorerSettings(Settings):
    scorer: ScorerSection = ScorerSection()
    seals: SealsSection = SealsSection()
