"""The score given when the model has none to give (SPEC S1.5, S3.6).

The hostile case: the fallback grows with the number of transactions alone, 100 of them give
1000, and whoever can make three answers fail (by a questionnaire that derails the model, say)
could buy a signed maximum. That is why a fallback is marked in the event, the metadata and the
evidence, why its reason travels with it, and why each reason can be set to `withhold`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from services.validator.domain.breakdown import (
    NEUTRAL,
    round_half_up,
    validate_score_breakdown,
)

REASONING = "Fallback scoring: AI unavailable"
MAX_SCORE = 1000


def fallback_score(features: object) -> dict[str, Any]:
    """An answer of the model's shape, computed from `totalTransactions` as seed 3 has it.

    Exempt from the cross-check. Never raises: features without a usable count score 0.
    """
    total = min(MAX_SCORE, _transactions(features) * 10)
    fifth = round_half_up(total * 0.20 / 10)
    return {
        "score": total,
        "scoreBreakdown": validate_score_breakdown(
            {
                "activity": fifth,
                "maturity": fifth,
                "diversity": fifth,
                "riskBehavior": round_half_up(total * 0.25 / 10),
                "surveyMatch": NEUTRAL,
            }
        ),
        "reasoning": REASONING,
        "risk_factors": [],
        "strengths": [],
    }


def _transactions(features: object) -> int:
    count = features.get("totalTransactions") if isinstance(features, Mapping) else None
    if isinstance(count, bool) or not isinstance(count, (int, float)):
        return 0
    if isinstance(count, float) and not math.isfinite(count):
        return 0
    return max(0, int(count))
