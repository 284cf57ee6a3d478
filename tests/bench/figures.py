"""The arithmetic of the tables: medians, nearest-rank percentiles, ratios."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence


def percentile(ranked: Sequence[float], share: float) -> float:
    """Nearest rank of values in ascending order; `share` from 0 to 1."""
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def median_of(rounds: Sequence[Mapping[str, float]], figure: str) -> float:
    """Median of one figure over the rounds."""
    return statistics.median(found[figure] for found in rounds)


def paired_ratio(
    ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]], figure: str
) -> float:
    """Median of the ratios round by round: each pair ran side by side, so what else the machine
    did weighs on both."""
    return statistics.median(
        mine[figure] / other[figure] for mine, other in zip(ours, theirs, strict=True)
    )
