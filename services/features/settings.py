"""Settings of features."""

from __future__ import annotations

from pydantic import Field

from assay_runtime.seals import SealsSection
from assay_runtime.settings import Section, Settings


class FeaturesSection(Section):
    """Which process scores wallets."""

    processes: str = Field("", description="folder of processes; empty: those shipped")
    process: str = Field("wallet_score", description="the process asked for a score")
    batch: int = Field(200, ge=1, description="records per batch")


class FeaturesSettings(Settings):
    features: FeaturesSection = FeaturesSection()
    seals: SealsSection = SealsSection()
