"""The fallback score (SPEC S1.5, S3.6)."""

from __future__ import annotations

import math

import pytest

from services.validator.domain.breakdown import agrees
from services.validator.domain.fallback import fallback_score


def test_fallback_of_a_busy_wallet() -> None:
    """S3.6: capped at 1000, breakdown 20, 20, 20, 25, 50."""
    assert fallback_score({"totalTransactions": 2681}) == {
        "score": 1000,
        "scoreBreakdown": {
            "activity": 20,
            "maturity": 20,
            "diversity": 20,
            "riskBehavior": 25,
            "surveyMatch": 50,
        },
        "reasoning": "Fallback scoring: AI unavailable",
        "risk_factors": [],
        "strengths": [],
    }


@pytest.mark.parametrize(
    ("transactions", "score", "fifth", "quarter"),
    [
        (0, 0, 0, 0), (2, 20, 0, 1), (6, 60, 1, 2), (7, 70, 1, 2), (42, 420, 8, 11),
        (100, 1000, 20, 25),
    ],
)  # fmt: skip
def test_proportions(transactions: int, score: int, fifth: int, quarter: int) -> None:
    """S3.6: round(total·0.20/10) and round(total·0.25/10), halves up as in JavaScript."""
    got = fallback_score({"totalTransactions": transactions})
    assert got["score"] == score
    assert list(got["scoreBreakdown"].values()) == [fifth, fifth, fifth, quarter, 50]


@pytest.mark.parametrize(
    "features",
    [
        None, [], "x", {}, {"totalTransactions": None}, {"totalTransactions": "12"},
        {"totalTransactions": -5}, {"totalTransactions": math.nan}, {"totalTransactions": math.inf},
        {"totalTransactions": True}, {"totalTransactions": -(10**400)},
    ],
)  # fmt: skip
def test_features_without_a_usable_count_score_0(features: object) -> None:
    """S3.6: never raises."""
    assert fallback_score(features)["score"] == 0


def test_a_huge_count_is_capped() -> None:
    """S3.6: integers beyond a double included."""
    assert fallback_score({"totalTransactions": 10**400})["score"] == 1000


def test_a_hundred_transactions_buy_a_full_fallback() -> None:
    """S3.6, the hostile case: the formula alone would sign 1000, against its own breakdown, so it
    has to be marked and may be withheld."""
    bought = fallback_score({"totalTransactions": 100, "liquidateCount": 40})
    assert bought["score"] == 1000
    assert not agrees(bought["score"], bought["scoreBreakdown"])
