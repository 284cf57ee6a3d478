"""Settings of the validator."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from assay_runtime.seals import SealsSection
from assay_runtime.settings import Section, Settings

Ending = Literal["process", "fallback_score", "withhold"]


class ValidatorSection(Section):
    """Which processes are judged, and what an operator overrides of scores (SPEC S3.6)."""

    processes: str = Field("", description="folder of processes; empty: those shipped")
    on_provider_unavailable: Ending = Field(
        "process", description="after the model's patience: as the process says, or overridden"
    )
    on_answers_rejected: Ending = Field(
        "process", description="after the last attempt: as the process says, or overridden"
    )
    batch: int = Field(200, ge=1, description="records per batch")


class ValidatorSettings(Settings):
    validator: ValidatorSection = ValidatorSection()
    seals: SealsSection = SealsSection()
