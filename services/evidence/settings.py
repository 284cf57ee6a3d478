"""Settings of evidence."""

from __future__ import annotations

from pydantic import Field

from assay_runtime.settings import Section, Settings


class EvidenceSection(Section):
    """Where evidence is kept and who may read it."""

    store: str = Field(
        "sqlite:///data/evidence.sqlite", description="sqlite:///PATH or postgresql://…"
    )
    token: str = Field(
        "", repr=False, description="bearer token of the redacted pages; needed beyond loopback"
    )
    full_text_token: str = Field(
        "",
        repr=False,
        description="bearer token of unredacted text (`?full=true`); unset: not over HTTP at all",
    )
    erasure_token: str = Field(
        "", repr=False, description="bearer token of `POST /erasures`; unset: not over HTTP at all"
    )
    tenant: str = Field("default", description="tenant of the input topic")
    batch: int = Field(500, ge=1, description="records per transaction")


class EvidenceSettings(Settings):
    evidence: EvidenceSection = EvidenceSection()
