"""What counts of several outcomes of one request (SPEC X.2, ARCHITECTURE decision 20)."""

from __future__ import annotations

from itertools import permutations
from typing import Any, Literal

import pytest

from assay.cli.known_outcomes import KnownOutcomes
from assay.client import Outcome

Status = Literal["signed", "accepted", "rejected", "dead_lettered"]


def outcome(status: Status, **changes: Any) -> Outcome:
    return Outcome("r", status, reason=status, **changes)


def known(*outcomes: Outcome) -> KnownOutcomes:
    found = KnownOutcomes({"r"})
    for one in outcomes:
        found.note(one)
    return found


@pytest.mark.parametrize("order", [*permutations(["signed", "rejected", "dead_lettered"])])
def test_what_is_signed_wins_wherever_it_stands(order: tuple[Status, ...]) -> None:
    """A dead letter that was mended and replayed is signed behind it, on another topic."""
    assert known(*map(outcome, order)).end("r") == outcome("signed")


def test_a_dead_letter_is_no_end_but_is_remembered() -> None:
    """Published again the request is tried again, so that another outcome comes."""
    found = known(outcome("dead_lettered", code="old"), outcome("dead_lettered", code="new"))
    assert found.end("r") is None
    assert found.dead_letter("r") == outcome("dead_lettered", code="new")


def test_a_rejection_is_an_end() -> None:
    """Published again it has nothing left to do."""
    assert known(outcome("dead_lettered"), outcome("rejected")).end("r") == outcome("rejected")


def test_what_may_be_a_strangers_ends_nothing() -> None:
    found = known(outcome("rejected", unsealed=True), outcome("dead_lettered", doubtful=True))
    assert found.end("r") is None
    assert found.dead_letter("r") == outcome("dead_lettered", doubtful=True)
    found.note(outcome("signed"))
    found.note(outcome("dead_lettered", doubtful=True))
    assert found.end("r") == outcome("signed")


def test_nothing_is_kept_of_others() -> None:
    found = KnownOutcomes({"another"})
    found.note(outcome("signed"))
    assert (found.end("r"), found.dead_letter("r")) == (None, None)
