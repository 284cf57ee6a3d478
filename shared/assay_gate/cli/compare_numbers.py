"""Rates with their uncertainty, distributions and deltas of two process versions. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

_Z = 1.959964  # 95 % of a normal distribution lie within so many standard deviations
_BINS = 10


class Requests(Protocol):
    """What is counted; see `assay.cli.request_table.RequestTable`."""

    def requests(self, side: int) -> int: ...
    def retried(self, side: int) -> int: ...
    def attempts(self, side: int) -> tuple[int, int]: ...
    def ended(self, side: int) -> dict[str, int]: ...
    def count(self, sample: str, *side: int) -> int: ...
    def mean(self, sample: str, *side: int) -> float: ...
    def at(self, sample: str, places: list[int], *side: int) -> list[float]: ...
    def between(self, edges: list[float], side: int) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` of `of`, and the Wilson 95 % interval of the share; all None of nothing."""

    count: int
    of: int

    @property
    def share(self) -> float | None:
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float] | None:
        return wilson(self.count, self.of)

    def to_json(self) -> dict[str, Any]:
        return {
            "count": self.count, "of": self.of, "rate": _rounded(self.share, 6),
            "wilson95": [_rounded(end, 6) for end in self.interval] if self.interval else None,
        }  # fmt: skip


def wilson(count: int, of: int) -> tuple[float, float] | None:
    """Where the true share may lie, at 95 % (Wilson 1927); None of nothing."""
    if not of:
        return None
    share, square = count / of, _Z * _Z
    middle = (share + square / (2 * of)) / (1 + square / of)
    spread = _Z * math.sqrt(share * (1 - share) / of + square / (4 * of * of)) / (1 + square / of)
    low = 0.0 if count == 0 else max(0.0, middle - spread)
    return low, 1.0 if count == of else min(1.0, middle + spread)


def version_numbers(table: Requests, side: int, edges: list[float] | None) -> dict[str, Any]:
    """One version's numbers.

    Rates of acceptance, fallback and rejection are of ended requests, that of retries of all.
    Attempts are per step that was asked. Scores are the model's own, without fallbacks.
    """
    requests = table.requests(side)
    kinds = table.ended(side)
    ended = sum(kinds.values())
    answers, asked = table.attempts(side)
    return {
        "requests": requests,
        "ended": ended,
        "open": requests - ended,
        "accepted": Rate(kinds.get("accepted", 0), ended).to_json(),
        "fallback": Rate(kinds.get("fallback", 0), ended).to_json(),
        "rejected": Rate(kinds.get("rejected", 0), ended).to_json(),
        "retried": Rate(table.retried(side), requests).to_json(),
        "mean_attempts": _rounded(answers / asked, 4) if asked else None,
        "scores": _scores(table, side, edges),
    }


def _scores(table: Requests, side: int, edges: list[float] | None) -> dict[str, Any] | None:
    count = table.count("scores", side)
    if not count or edges is None:
        return None
    marks = {"min": 0.0, "p10": 0.1, "p50": 0.5, "p90": 0.9, "max": 1.0}
    shown = {name: _percentile(table, "scores", share, side) for name, share in marks.items()}
    histogram = {"edges": edges, "counts": table.between(edges, side)}
    mean = _rounded(table.mean("scores", side), 4)
    return {"count": count, **shown, "mean": mean, "histogram": histogram}


def delta_numbers(table: Requests, sample: str) -> dict[str, Any]:
    """Second minus first, of what both accepted; `sample` is deltas or wallet_deltas."""
    count = table.count(sample)
    if not count:
        return {"count": 0, "mean": None, "median": None, "p90_abs": None}
    return {
        "count": count,
        "mean": _rounded(table.mean(sample), 4),
        "median": _percentile(table, sample, 0.5),
        "p90_abs": _percentile(table, f"abs_{sample}", 0.9),
    }


def histogram_edges(table: Requests) -> list[float] | None:
    """Ten equal bins for both versions: from 0 to the next power of ten, or, with negative
    scores, from the least to the most; None where there is no score."""
    sides = [side for side in (0, 1) if table.count("scores", side)]
    if not sides:
        return None
    ends = [table.at("scores", [0, table.count("scores", side) - 1], side) for side in sides]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    if low >= 0:
        low, high = 0.0, 10.0 ** max(0, math.ceil(math.log10(high))) if high > 0 else 1.0
    elif low == high:
        high = low + 1
    return [_rounded(low + (high - low) * place / _BINS, 9) or 0.0 for place in range(_BINS + 1)]


def _percentile(table: Requests, sample: str, share: float, *side: int) -> float:
    """Interpolated between the two nearest, as numpy and spreadsheets do."""
    place = (table.count(sample, *side) - 1) * share
    below, above = table.at(sample, [math.floor(place), math.ceil(place)], *side)
    return round(below + (above - below) * (place - math.floor(place)), 4)


def _rounded(value: float | None, places: int) -> float | None:
    return None if value is None else round(value, places)
