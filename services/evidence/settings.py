"""Settings of evidence."""

from __future__ import annotations

from pydantic import Field

from assay_runtime.settings import Section, Settings


class EvidenceSection(Section):
    """Where evidence is kept and who may read it."""

    store: str = Field(
        "sqlite:///data/evidence.sqlite", description="sqlite:///PATH or postgresql://…"
    )
    token: str = Field("", description="bearer token of the pages; needed beyond loopback")
    tenant: str = Field("default", description="tenant of the input topic")
    batch: int = Field(500, ge=1, description="records per transaction")


class EvidenceSettings(Settings):
    evidence: EvidenceSection = EvidenceSection()
