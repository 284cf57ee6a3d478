"""What follows a refused answer (SPEC S1.4, S1.5, S3.6, S4.6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay_gate.chain import EXPRESSION_FAILED
from services.validator.domain.endings import Consequence, Overrides, consequence
from tests.unit.validator.answers import answered, wallet_score
from tests.unit.validator.processes import SCORE, own, shadow_score


@pytest.mark.parametrize(
    ("attempt", "outcome", "expected"),
    [
        (1, "answered", Consequence(retry=2)),
        (2, "failed", Consequence(retry=3)),
        (3, "answered", Consequence(reason="answers_rejected", ends_as="fallback_score")),
        (3, "failed", Consequence(reason="answers_rejected", ends_as="fallback_score")),
        (7, "answered", Consequence(reason="answers_rejected", ends_as="fallback_score")),
        (1, "unavailable", Consequence(reason="provider_unavailable", ends_as="fallback_score")),
    ],
)
def test_three_attempts_then_the_end(attempt: int, outcome: str, expected: Consequence) -> None:
    """S1.4, S1.5: an endpoint that is away is not asked again."""
    event = answered("no", attempt=attempt, outcome=outcome)
    assert consequence(event, wallet_score(), Overrides()) == expected


def test_each_reason_can_be_set_by_itself() -> None:
    """S3.6: `withhold` for one leaves the other as the process says."""
    overrides = Overrides(answers_rejected="withhold")
    rejected = answered("no", attempt=3)
    away = answered("no", outcome="unavailable")
    assert consequence(rejected, wallet_score(), overrides).ends_as == "withheld"
    assert consequence(away, wallet_score(), overrides).ends_as == "fallback_score"
    both = Overrides("withhold", "fallback_score")
    assert consequence(rejected, wallet_score(), both).ends_as == "fallback_score"
    assert consequence(away, wallet_score(), both).ends_as == "withheld"


EMPTY: dict[str, Any] = {
    "exhausted": {"answers_rejected": "empty_result"},
    "empty_result": {"n": 0},
}


@pytest.mark.parametrize("override", ["process", "withhold", "fallback_score"])
def test_other_processes_end_as_they_say(tmp_path: Path, override: Any) -> None:
    """Issue 5 item 2: an empty result for one reason, a rejection for the other; what an operator
    sets for scores is nothing to them."""
    process = own(tmp_path, [{"name": "a"}], temperatures=[0.1], **EMPTY)
    overrides = Overrides(override, override)
    rejected = answered("no", process=process)
    away = answered("no", process=process, outcome="unavailable")
    assert consequence(rejected, process, overrides) == Consequence(
        reason="answers_rejected", ends_as="empty_result"
    )
    assert consequence(away, process, overrides) == Consequence(
        reason="provider_unavailable", ends_as="rejected"
    )


def test_attempts_are_counted_for_each_step(tmp_path: Path) -> None:
    """S1.4, S4.12: a step has as many as it says, whatever the others have."""
    process = own(
        tmp_path, [{"name": "a"}, {"name": "b"}], temperatures=[0.1],
        steps={"b": {"temperatures": [0.1, 0.2]}},
    )  # fmt: skip
    first = answered("no", process=process, step="a")
    second = answered("no", process=process, step="b")
    assert consequence(first, process, Overrides()).ends_as == "rejected"
    assert consequence(second, process, Overrides()) == Consequence(retry=2)


def test_a_shadow_has_no_fallback(tmp_path: Path) -> None:
    """Issue 5 item 7: it ends as rejected, by the mark of its request or because it is one."""
    ended = Consequence(reason="answers_rejected", ends_as="rejected")
    marked = answered("no", attempt=3, shadow=True)
    assert consequence(marked, wallet_score(), Overrides()) == ended
    process = shadow_score(tmp_path)
    unmarked = answered("no", process=process, attempt=3, input=SCORE)
    for overrides in (Overrides(), Overrides("fallback_score", "fallback_score")):
        assert consequence(unmarked, process, overrides) == ended


def test_a_failed_expression_is_not_asked_again() -> None:
    """S4.12: it would compute the same. A score then is neither given nor made up."""
    error = {"code": EXPRESSION_FAILED, "message": "x"}
    event = answered(outcome="failed", error=error)
    assert consequence(event, wallet_score(), Overrides()) == Consequence(ends_as="rejected")
