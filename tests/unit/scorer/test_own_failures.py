"""Which failures that look like an outage are one call's own (DESIGN §5, SPEC X.6)."""

from __future__ import annotations

import random

import pytest

from services.scorer.domain.own_failures import Answers, OwnFailures
from services.scorer.domain.provider import BadGateway, ModelMisconfigured, ModelUnavailable

BUSY = ModelUnavailable("HTTP 429")
POINTED = [BadGateway("HTTP 502"), ModelMisconfigured("HTTP 403")]
PATIENCE_S = 300.0
MOST = 10_000


def failures_until_enough(
    error: ModelUnavailable, *, calls: int = 0, probe: bool = False, cycle_s: float = 2.0,
    slots: int = 8, alone: bool = True,
) -> int | None:  # fmt: skip
    """Of a call that always fails, while so many others and a probe are answered in between."""
    own, answers, now = OwnFailures(slots, PATIENCE_S), Answers(), 0.0
    for failures in range(1, MOST):
        if own.enough(error, answers, now, alone=alone):
            return failures
        for _ in range(calls):
            answers.call(now + cycle_s / 2)
        if probe:
            answers.probe(now + cycle_s / 2)
        now += cycle_s
    return None


@pytest.mark.parametrize("error", [BUSY, *POINTED])
def test_a_real_outage_never_counts(error: ModelUnavailable) -> None:
    """DESIGN §5: while nothing is answered, no attempt is lost, however long it lasts."""
    assert failures_until_enough(error) is None


@pytest.mark.parametrize("error", [BUSY, *POINTED])
def test_what_was_asked_before_the_failure_proves_nothing(error: ModelUnavailable) -> None:
    """X.6: a server that stops takes no new call and still ends those that it has."""
    own, answers = OwnFailures(8, PATIENCE_S), Answers()
    for second in range(MOST):
        assert not own.enough(error, answers, second, alone=True)
        answers.call(second - 1)


@pytest.mark.parametrize("error", POINTED)
def test_what_load_does_not_explain_counts_after_a_few(error: ModelUnavailable) -> None:
    """X.6: the first proves nothing, nor do two more; then it is the call."""
    assert failures_until_enough(error, calls=1) == 4


def test_a_backend_that_dies_proves_nothing_of_those_it_had_in_hand() -> None:
    """DESIGN §5: a 502 counts soon only for a call that went alone, and while calls are answered:
    a probe asks little."""
    gateway, refused = POINTED
    assert failures_until_enough(gateway, calls=1, alone=False) == 81
    assert failures_until_enough(gateway, probe=True) == 2 + PATIENCE_S / 2
    assert failures_until_enough(refused, probe=True, alone=False) == 4


def test_a_few_outages_cost_no_attempt() -> None:
    """DESIGN §5: each with its own patience, even where nobody's call got through between them."""
    own, answers, now = OwnFailures(8, PATIENCE_S), Answers(), 0.0
    for _ in range(9):
        for _ in range(20):
            assert not own.enough(BUSY, answers, now, alone=True)
            now += PATIENCE_S / 20
        answers.probe(now)
        now += 1


def test_a_call_that_is_always_passed_over_ends() -> None:
    """X.6: after ten answers to every slot, and not before it was passed over ten times."""
    assert failures_until_enough(BUSY, calls=1, slots=8) == 81
    assert failures_until_enough(BUSY, calls=20, slots=8) == 11
    assert failures_until_enough(BUSY, calls=1, slots=64) == 641


@pytest.mark.parametrize("cycle_s", [2.0, 120.0])
def test_where_only_probes_are_answered_it_is_the_patience(cycle_s: float) -> None:
    """X.6: slots that hold nothing but such calls are free again after the patience."""
    failures = failures_until_enough(BUSY, probe=True, cycle_s=cycle_s)
    assert failures == max(11, 2 + PATIENCE_S / cycle_s)


def test_the_patience_begins_anew_with_every_call_answered() -> None:
    """X.6: until then the endpoint was not away."""
    own, answers = OwnFailures(8, PATIENCE_S), Answers()
    for second in range(0, 4 * int(PATIENCE_S), 2):
        assert not own.enough(BUSY, answers, second, alone=True)
        answers.probe(second + 1)
        if second % 200 == 0:
            answers.call(second + 1)


@pytest.mark.parametrize("slots", [8, 64])
def test_a_rate_limit_costs_no_attempt(slots: int) -> None:
    """DESIGN §5: one answer in four seconds for all slots; who gets it is chance."""
    chance, answers, now = random.Random(7), Answers(), 0.0
    waiting = [OwnFailures(slots, PATIENCE_S) for _ in range(slots)]
    room = 0.0
    for _ in range(2_000):
        now += 2
        room = min(room + 0.5, 1)
        for place in chance.sample(range(slots), slots):
            if room >= 1:
                room -= 1
                answers.call(now + place / slots)
                waiting[place] = OwnFailures(slots, PATIENCE_S)
            else:
                assert not waiting[place].enough(BUSY, answers, now + place / slots, alone=False)
    assert answers.calls == 1_000
