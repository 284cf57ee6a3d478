"""The verdict on an answered event (SPEC S1.3, S1.6, S3.4, S4.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.validator.domain.judgement import judge
from tests.unit.validator.answers import GOOD, answered, wallet_score
from tests.unit.validator.processes import own


@pytest.mark.parametrize(
    ("changed", "stage", "rule"),
    [
        ({"score": 750}, "validation", "cross_check"),
        ({"score": 1001}, "schema_validation", "maximum"),
        ({"reasoning": "short"}, "schema_validation", "minLength"),
        ({"approved": True}, "schema_validation", "additionalProperties"),
    ],
)
def test_what_schema_and_rules_refuse(changed: dict[str, Any], stage: str, rule: str) -> None:
    """S1.1, S1.3, S1.6: judged again on receipt, whatever the provider promised."""
    verdict = judge(answered({**GOOD, **changed}), wallet_score())
    assert (verdict.accepted, verdict.stage) == (False, stage)
    assert rule in {error["rule"] for error in verdict.errors}


def test_survey_match_is_50_without_a_questionnaire() -> None:
    """S3.4: set before the cross-check, and noted; with a questionnaire it is the model's."""
    odd = {**GOOD, "scoreBreakdown": {**GOOD["scoreBreakdown"], "surveyMatch": 99}}  # type: ignore[dict-item]
    verdict = judge(answered(odd), wallet_score())
    assert verdict.accepted
    assert verdict.value["scoreBreakdown"]["surveyMatch"] == 50
    assert [repair["kind"] for repair in verdict.repairs] == ["assigned"]
    event = answered(odd)
    told = event.model_copy(update={"input": {**event.input, "has_questionnaire": True}})
    assert judge(told, wallet_score()).errors[0]["rule"] == "cross_check"


@pytest.mark.parametrize("finish", [None, "stop", "eos", "end_turn", "stop_sequence", "unknown"])
def test_a_whole_answer_by_any_name(finish: str | None) -> None:
    """DESIGN §5: providers have several words for it."""
    assert judge(answered(finish_reason=finish), wallet_score()).accepted


@pytest.mark.parametrize("finish", ["length", "content_filter", "max_tokens", ""])
def test_a_cut_answer_is_refused_even_if_it_fits(finish: str) -> None:
    """DESIGN §5: a cut-off answer is never repaired."""
    verdict = judge(answered(finish_reason=finish), wallet_score())
    assert (verdict.stage, verdict.errors[0]["rule"]) == ("pipeline_internal", "finish_reason")


@pytest.mark.parametrize("outcome", ["failed", "unavailable"])
def test_no_answer_is_no_answer(outcome: str) -> None:
    """S4.2: with the provider's reason, even where some text came along."""
    event = answered(outcome=outcome, error={"code": "deadline", "message": "3 s"})
    verdict = judge(event, wallet_score())
    assert (verdict.accepted, verdict.stage) == (False, "pipeline_internal")
    assert verdict.errors[0]["message"] == "3 s"
    assert not judge(answered(outcome="answered", raw=None).model_copy(update={"raw": None}),
                     wallet_score()).accepted  # fmt: skip


def test_rules_see_the_input_and_the_unit(tmp_path: Path) -> None:
    """S4.4, S4.12: the record that was accumulated so far, and `unit_id` as seed 4 injects it."""
    rules = [{"name": "whose", "expr": "unit_id == 'u' and n > least", "error": "no"}]
    process = own(tmp_path, [{"name": "a"}], validation={"a": {"rules": rules}})
    for unit, n, good in (("u", 3, True), ("v", 3, False), ("u", 1, False)):
        event = answered({"n": n}, process=process, unit_id=unit, input={"least": 2})
        assert judge(event, process).accepted is good
