"""The gate on recorded answers: the project's own cases and the shared corpus (S4.1-S4.3, S5.4).

A case says accept (with the value), reject, or either (with the values that are allowed).
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from assay_gate import Gate

OWN = Path(__file__).with_name("cases.jsonl")
CORPUS = Path(__file__).resolve().parents[4] / "shared" / "corpora" / "gate.jsonl"
CASES = [json.loads(line) for line in OWN.read_text(encoding="utf-8").splitlines()]


def exact(value: Any) -> str:
    """JSON text in which 5, 5.0 and true differ."""
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_own_case(case: dict[str, Any]) -> None:
    """S4.1, S4.3: accepted with exactly this value, or rejected with a reason."""
    verdict = Gate(case["schema"]).judge(case["raw"])
    if case["expect"] == "accept":
        assert verdict.accepted, verdict.errors
        assert exact(verdict.value) == exact(case["value"])
        assert verdict.stage is None
        assert verdict.errors == []
    else:
        assert not verdict.accepted, verdict.value
        assert verdict.value is None
        assert verdict.stage in ("pipeline_internal", "schema_validation")
        assert all(error["path"].startswith("$") for error in verdict.errors)
        assert all(error["rule"] and error["message"] for error in verdict.errors)


def test_own_cases_cover_both_outcomes() -> None:
    """A corpus of one kind would prove nothing."""
    counts = Counter(case["expect"] for case in CASES)
    assert counts["accept"] > 100
    assert counts["reject"] > 100


@pytest.mark.skipif(not CORPUS.exists(), reason="the shared corpus is not beside the repository")
def test_shared_corpus() -> None:
    """Issue numbers: no false accept, no wrong value, at least 97 % of accept cases rescued."""
    false_accepts, wrong, lost, accepts = [], [], [], 0
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        verdict = Gate(case["schema"]).judge(case["raw"])
        if case["expect"] == "reject" and verdict.accepted:
            false_accepts.append(case["id"])
        if case["expect"] == "either" and verdict.accepted:
            allowed = [exact(value) for value in case["allowed"]]
            wrong += [] if exact(verdict.value) in allowed else [case["id"]]
        if case["expect"] == "accept":
            accepts += 1
            lost += [] if verdict.accepted else [case["id"]]
            if verdict.accepted and exact(verdict.value) != exact(case["value"]):
                wrong.append(case["id"])
    assert false_accepts == []
    assert wrong == []
    assert len(lost) <= 0.03 * accepts, lost


def test_validators_agree() -> None:
    """DESIGN §4: jsonschema-rs on the hot path says what jsonschema says."""
    for case in CASES:
        if isinstance(case["schema"], bool):
            continue
        gate = Gate(case["schema"])
        reference = jsonschema.Draft202012Validator(case["schema"])
        values = [case["value"]] if "value" in case else []
        with contextlib.suppress(ValueError, RecursionError):
            values.append(json.loads(case["raw"]))
        for value in values:
            if "Infinity" in exact(value) or "NaN" in exact(value):
                continue
            assert gate.validates(value) == reference.is_valid(value), case["id"]
