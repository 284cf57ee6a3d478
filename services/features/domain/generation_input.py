"""The input of a `wallet_score` generation."""

from __future__ import annotations

from typing import Any

from services.features.domain.extraction import Extraction
from services.features.domain.questionnaire import NO_QUESTIONNAIRE, format_questionnaire


def build_generation_input(
    address: str,
    extraction: Extraction,
    questionnaire: object,
    evm_source: str,
    evm_sha256: str,
) -> dict[str, Any]:
    """What the process's input schema describes; `questionnaire` is the text the prompt shows.

    `has_questionnaire` is false exactly where the prompt says that there is none (SPEC S3.4).
    """
    text = format_questionnaire(questionnaire)
    return {
        "address": address,
        "features": extraction.features,
        "questionnaire": text,
        "has_questionnaire": text != NO_QUESTIONNAIRE,
        "evm_source": evm_source,
        "evm_sha256": evm_sha256,
    }
