"""Breakdowns: cross-check and lenient reading (SPEC S1.6, S3.7)."""

from __future__ import annotations

import math

import pytest

from services.validator.domain.breakdown import (
    agrees,
    expected_score,
    round_half_up,
    validate_score_breakdown,
)

SEED = {"activity": 85, "maturity": 78, "diversity": 62, "riskBehavior": 88, "surveyMatch": 72}


def test_a_complete_breakdown_is_unchanged() -> None:
    """S3.7: seed 3, "Validate complete breakdown"."""
    assert validate_score_breakdown(SEED) == SEED


def test_values_out_of_range_are_clamped() -> None:
    """S3.7: seed 3, "Clamp out-of-range values"."""
    got = validate_score_breakdown({**SEED, "activity": 150, "maturity": -20})
    assert got == {**SEED, "activity": 100, "maturity": 0}


@pytest.mark.parametrize("nothing", [None, [], "x", 3, {}, {"activity": None}, {"activity": {}}])
def test_a_missing_breakdown_is_all_50(nothing: object) -> None:
    """S3.7: seed 3, "Provide defaults for missing breakdown"."""
    assert validate_score_breakdown(nothing) == dict.fromkeys(SEED, 50)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (62.5, 63), (61.49, 61), (-0.5, 0), (True, 50), ("85", 50), (math.nan, 50),
        (math.inf, 50), (10**400, 100), (-(10**400), 0), (1e300, 100),
    ],
)  # fmt: skip
def test_one_dimension_in_every_dress(value: object, expected: int) -> None:
    """S3.7: an integer 0-100 whatever stands there; the others are not touched."""
    got = validate_score_breakdown({**SEED, "diversity": value, "extra": 1})
    assert got == {**SEED, "diversity": expected}
    assert type(got["diversity"]) is int


def test_expected_score() -> None:
    """S1.6: weights 2, 2, 2, 2.5, 1.5 without the seed's division by ten."""
    assert expected_score(SEED) == 778
    assert expected_score(dict.fromkeys(SEED, 100)) == 1000
    assert expected_score(dict.fromkeys(SEED, 0)) == 0
    assert expected_score({**dict.fromkeys(SEED, 0), "riskBehavior": 1}) == 2.5
    assert expected_score({**dict.fromkeys(SEED, 0), "surveyMatch": 1}) == 1.5


@pytest.mark.parametrize(
    ("score", "accepted"), [(750, False), (757, False), (758, True), (798, True), (799, False)]
)
def test_cross_check_tolerance(score: int, accepted: bool) -> None:
    """S1.6: within 20 points, the bounds included; seed 3's own example fails."""
    assert agrees(score, SEED) is accepted


@pytest.mark.parametrize(
    ("value", "expected"), [(0.5, 1), (1.5, 2), (2.5, 3), (-0.5, 0), (0.49999999999999994, 0)]
)
def test_rounding_is_javascripts(value: float, expected: int) -> None:
    """S3.6: Math.round, not Python's banker's rounding."""
    assert round_half_up(value) == expected
