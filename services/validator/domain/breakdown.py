"""Score breakdowns: the cross-check and the lenient reading (SPEC S1.6, S3.7)."""

from __future__ import annotations

import math
from collections.abc import Mapping

DIMENSIONS = ("activity", "maturity", "diversity", "riskBehavior", "surveyMatch")
NEUTRAL = 50
TOLERANCE = 20

# Twice the weights 2, 2, 2, 2.5 and 1.5, so that the sum stays an integer.
_DOUBLED_WEIGHTS = dict(zip(DIMENSIONS, (4, 4, 4, 5, 3), strict=True))


def expected_score(breakdown: Mapping[str, int]) -> float:
    """The score a breakdown is worth, 0-1000, exact to the half point.

    activity·2 + maturity·2 + diversity·2 + riskBehavior·2.5 + surveyMatch·1.5. Seed 1 divides by
    10, which lands on 0-100 although `score` is 0-1000; the weights add to 10, so the formula
    without the division is the one on the score's own scale, and the tolerance "20 points, 2 % of
    1000" says the same (SPEC S1, "Settled"). KeyError where a dimension is missing: the schema
    has judged the answer before.
    """
    return sum(weight * breakdown[name] for name, weight in _DOUBLED_WEIGHTS.items()) / 2


def agrees(score: int, breakdown: Mapping[str, int]) -> bool:
    """The cross-check: `score` lies within 20 points of what its breakdown is worth (S1.6)."""
    return abs(score - expected_score(breakdown)) <= TOLERANCE


def validate_score_breakdown(breakdown: object) -> dict[str, int]:
    """Five integers 0-100 out of anything, as seed 3 has it (S3.7). Never raises.

    A good breakdown comes back unchanged, numbers out of range are clamped, and what is missing
    or no finite number is 50. For the fallback and for stored older records only: the model's
    answers are never clamped into acceptance (S1.3 rejects and retries them).
    """
    values = breakdown if isinstance(breakdown, Mapping) else {}
    return {name: _share(values.get(name)) for name in DIMENSIONS}


def round_half_up(value: float) -> int:
    """JavaScript's Math.round: halves go up, where Python's `round` takes the even neighbour."""
    below = math.floor(value)
    return below + (value - below >= 0.5)


def _share(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return NEUTRAL
    if isinstance(value, float):
        if not math.isfinite(value):
            return NEUTRAL
        value = round_half_up(value)
    return min(100, max(0, value))
