"""The gate on answers made to break it: about 1,600 faults of wallet answers and schema kinds.

Each case of red_team.jsonl says what the rules ask for: accept (with the value), reject, or
either (with the values that are allowed), decided without looking at what the gate does.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay_gate import Gate

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in Path(__file__).with_name("red_team.jsonl").read_text(encoding="utf-8").splitlines()
]
SOURCES = sorted({case["source"] for case in CASES})


def exact(value: Any) -> str:
    """JSON text in which 5, 5.0 and true differ."""
    return json.dumps(value, sort_keys=True)


def of(source: str, expect: str) -> list[dict[str, Any]]:
    return [case for case in CASES if (case["source"], case["expect"]) == (source, expect)]


@pytest.mark.parametrize("source", SOURCES)
def test_nothing_that_must_be_rejected_passes(source: str) -> None:
    """DESIGN §4, rules 2-8: no false accept, and every rejection has a reason and a stage."""
    passed = []
    for case in of(source, "reject"):
        verdict = Gate(case["schema"]).judge(case["raw"])
        if verdict.accepted:
            passed.append((case["id"], case["why"], verdict.value))
        else:
            assert verdict.errors, case["id"]
            assert verdict.stage in ("pipeline_internal", "schema_validation"), case["id"]
    assert passed == []


@pytest.mark.parametrize("source", SOURCES)
def test_everything_usable_is_accepted_with_its_exact_value(source: str) -> None:
    """S4.1-S4.3, rule 1: the one reasonable reading, unchanged and complete."""
    lost, wrong = [], []
    for case in of(source, "accept"):
        verdict = Gate(case["schema"]).judge(case["raw"])
        if not verdict.accepted:
            lost.append((case["id"], case["why"], verdict.errors))
        elif exact(verdict.value) != exact(case["value"]):
            wrong.append((case["id"], case["why"], verdict.value))
    assert wrong == []
    assert lost == []


@pytest.mark.parametrize("source", SOURCES)
def test_what_may_be_accepted_has_an_allowed_value(source: str) -> None:
    """Rule 6 and its like: a debatable answer is rejected or read in one of the allowed ways."""
    wrong = []
    for case in of(source, "either"):
        verdict = Gate(case["schema"]).judge(case["raw"])
        if verdict.accepted and exact(verdict.value) not in map(exact, case["allowed"]):
            wrong.append((case["id"], case["why"], verdict.value))
    assert wrong == []


def test_the_cases_are_many_and_of_every_kind() -> None:
    """A corpus of one kind would prove nothing."""
    counts = Counter(case["expect"] for case in CASES)
    assert len({case["id"] for case in CASES}) == len(CASES)
    assert min(counts.values()) > 250
