"""Settings of ingest: `ASSAY_INGEST__<KEY>`."""

from __future__ import annotations

from pydantic import Field, field_validator

from assay_runtime.seals import SealsSection
from assay_runtime.settings import Section, Settings
from services.ingest.domain.aggregator_url import checked_template
from services.ingest.domain.limits import KEY_ALLOWANCE, TENANT_ALLOWANCE, Allowance
from services.ingest.domain.strict_json import JsonLimits


class IngestSection(Section):
    """The HTTP APIs, the aggregator, the limits on what is let in, the results table."""

    reply_deadline_s: float = Field(
        30, gt=0, le=600, description="POST /score waits this long for the score, then answers 202"
    )
    generation_deadline_s: float = Field(
        60, gt=0, le=600,
        description="POST …/generate waits this long for the answer, then answers 202",
    )  # fmt: skip
    max_waiting: int = Field(512, gt=0, description="requests that may wait at once; more: 503")
    slots: int = Field(32, gt=0, description="submissions worked on at once")
    tenant: str = Field("default", min_length=1, description="tenant of the input topic")
    processes: str = Field("", description="folder of processes; empty: those shipped")
    inline_evm_data: bool = Field(
        True, description="accept evm_data over HTTP: whoever calls may then invent it"
    )

    aggregator_url: str | None = Field(
        None, description="http(s) URL with {address}; unset: evm_data must come inline"
    )
    aggregator_deadline_s: float = Field(20, gt=0, description="one fetch, retries included")
    aggregator_connect_s: float = Field(3, gt=0, description="to open a connection")
    aggregator_read_s: float = Field(10, gt=0, description="longest silence while reading")
    aggregator_attempts: int = Field(3, ge=1, le=10)

    max_body_bytes: int = Field(4_194_304, gt=0, description="a submission; larger: 413")
    max_depth: int = Field(64, gt=0, le=200, description="nested objects and lists")
    max_elements: int = Field(200_000, gt=0, description="members and items together")

    key_per_minute: int = Field(
        KEY_ALLOWANCE.per_minute, ge=1, description="of one API key without limits of its own"
    )
    key_burst: int = Field(KEY_ALLOWANCE.burst, ge=1, description="at once after a quiet time")
    key_concurrency: int = Field(KEY_ALLOWANCE.concurrency, ge=1, description="at the same time")
    tenant_per_minute: int = Field(
        TENANT_ALLOWANCE.per_minute, ge=1, description="of all API keys of one tenant together"
    )
    tenant_burst: int = Field(TENANT_ALLOWANCE.burst, ge=1, description="at once")
    tenant_concurrency: int = Field(
        TENANT_ALLOWANCE.concurrency, ge=1, description="at the same time"
    )

    store: str = Field(
        "sqlite:///data/requests.sqlite", description="sqlite:///PATH or postgresql://…"
    )
    request_memory_h: float = Field(
        168, gt=0, description="hours for which a request id returns its accepted event"
    )

    @field_validator("aggregator_url")
    @classmethod
    def _usable_url(cls, value: str | None) -> str | None:
        return None if value in (None, "") else checked_template(value or "")

    @property
    def json_limits(self) -> JsonLimits:
        """Bounds for submissions and for the aggregator's answers."""
        return JsonLimits(self.max_body_bytes, self.max_depth, self.max_elements)

    @property
    def per_key(self) -> Allowance:
        return Allowance(self.key_per_minute, self.key_burst, self.key_concurrency)

    @property
    def per_tenant(self) -> Allowance:
        return Allowance(self.tenant_per_minute, self.tenant_burst, self.tenant_concurrency)


class IngestSettings(Settings):
    ingest: IngestSection = IngestSection()
    seals: SealsSection = SealsSection()
