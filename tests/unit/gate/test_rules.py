"""Business rules: the declarative checks and expressions of seed 4 (S4.4)."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from assay_gate import GateConfig, GateError, Rules
from assay_gate.rules import evaluate_expressions, rule_problems, syntax_problem
from assay_gate.rules.ruleset import WorkerNeeded, _sandbox, without_worker

SEED: dict[str, Any] = {
    "required": ["personality_consistency"],
    "types": {"score": "number", "reasoning": "string", "items": "array"},
    "enums": {"tone": ["warm", "cold", "nervous", "hostile", "mysterious"]},
    "ranges": {"score": [1, 10], "probability": [0.0, 1.0]},
    "rules": [
        {
            "name": "personality_threshold",
            "expr": "personality_consistency >= 0.6",
            "error": "Personality consistency {personality_consistency} is below threshold 0.6",
            "level": "error",
        },
        {
            "name": "mood_warning",
            "expr": "mood_responsiveness >= 0.4",
            "error": "Low mood responsiveness: {mood_responsiveness}",
            "level": "warning",
        },
        {
            "name": "wound_count_check",
            "expr": "wound_count == len([v for v in wounds.values() if v > 0])",
            "error": "wound_count {wound_count} doesn't match actual non-zero wounds",
            "level": "error",
            "when": "'wounds' in dir() and 'wound_count' in dir()",
        },
    ],
}
UNIT = {"personality_consistency": 0.7, "mood_responsiveness": 0.5, "score": 5, "tone": "Warm"}
CROSS_CHECK = (
    "abs(score - (scoreBreakdown['activity']*2 + scoreBreakdown['maturity']*2"
    " + scoreBreakdown['diversity']*2 + scoreBreakdown['riskBehavior']*2.5"
    " + scoreBreakdown['surveyMatch']*1.5)) <= 20"
)


def names(found: list[Any]) -> list[tuple[str, str]]:
    return [(p["rule"], p["path"]) for p in found]


@pytest.fixture(scope="module")
def seed() -> Rules:
    return Rules(SEED)


def test_the_seeds_own_configuration_passes(seed: Rules) -> None:
    """S4.4: every section of the seed's example, on a unit that keeps them all."""
    assert seed.check({**UNIT, "wounds": {"a": 1, "b": 0}, "wound_count": 1}, "u") == ([], [])


@pytest.mark.parametrize(
    ("change", "rule", "path"),
    [
        ({"personality_consistency": None}, "required", "$.personality_consistency"),
        ({"score": "5"}, "types", "$.score"),
        ({"score": True}, "types", "$.score"),
        ({"reasoning": 3}, "types", "$.reasoning"),
        ({"items": {}}, "types", "$.items"),
        ({"tone": "angry"}, "enums", "$.tone"),
        ({"tone": 3}, "enums", "$.tone"),
        ({"score": 11}, "ranges", "$.score"),
        ({"probability": -0.1}, "ranges", "$.probability"),
        ({"probability": "0.5"}, "ranges", "$.probability"),
        ({"personality_consistency": 0.5}, "personality_threshold", "$"),
        ({"wounds": {"a": 1}, "wound_count": 2}, "wound_count_check", "$"),
        ({"wounds": 5, "wound_count": 2}, "wound_count_check", "$"),
    ],
)
def test_each_kind_of_rule_fails_a_unit(
    seed: Rules, change: dict[str, Any], rule: str, path: str
) -> None:
    """S4.4: required, types, enums, ranges, expressions; with rule name and path."""
    errors, _ = seed.check({**UNIT, **change}, "u")
    assert (rule, path) in names(errors)


def test_bounds_are_inclusive_and_absent_fields_are_skipped(seed: Rules) -> None:
    """S4.4: [min, max] includes both; only `required` asks for presence."""
    assert seed.check({**UNIT, "score": 1, "probability": 1.0}) == ([], [])
    assert seed.check({**UNIT, "score": 10, "probability": 0}) == ([], [])


def test_error_templates_name_the_fields(seed: Rules) -> None:
    """S4.4: `{field_name}` is interpolated; warnings do not fail the unit."""
    errors, warnings = seed.check(
        {**UNIT, "personality_consistency": 0.5, "mood_responsiveness": 0.1}
    )
    assert [e["message"] for e in errors] == ["Personality consistency 0.5 is below threshold 0.6"]
    assert [w["message"] for w in warnings] == ["Low mood responsiveness: 0.1"]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{a}", "5"), ("{b[c]}", "x"), ("{b.c}", "x"), ("{d[1]}", "2"), ("{a:.2f}", "5.00"),
        ("{zzz}", "{zzz}"), ("{a.__class__}", "{a.__class__}"), ("{{a}}", "{a}"), ("{b[c]:d}", "x"),
    ],
)  # fmt: skip
def test_templates_look_up_keys_and_never_attributes(template: str, text: str) -> None:
    """S4.4, X.5: templates reach nothing but the record."""
    rules = Rules({"rules": [{"name": "r", "expr": "False", "error": template}]})
    errors, _ = rules.check({"a": 5, "b": {"c": "x"}, "d": [1, 2]})
    assert errors[0]["message"] == text


def test_unknown_names_fail_a_rule_and_skip_a_condition() -> None:
    """S4.4: an `expr` that cannot be evaluated does not hold; absent fields in `when` skip."""
    rules = [
        {"name": "plain", "expr": "missing > 1"},
        {"name": "heavy", "expr": "len([m for m in missing]) > 1"},
        {"name": "skipped", "expr": "1 > 2", "when": "missing > 1"},
        {"name": "skipped_key", "expr": "1 > 2", "when": "a['b'] > 1"},
        {"name": "false", "expr": "1 > 2", "when": "a == 5"},
        {"name": "true", "expr": "1 > 2", "when": "'a' in dir()"},
    ]
    errors, warnings = Rules({"rules": rules}).check({"a": {}})
    assert [e["rule"] for e in errors] == ["plain", "heavy", "true"]
    assert "NameError" in errors[0]["message"]
    assert warnings == []


@pytest.mark.parametrize("when", ["1 / 0", "[x for x in [1]] > 3"])
def test_a_condition_that_breaks_skips_its_rule_and_says_so(when: str) -> None:
    """S4.4: not true means not fired; a broken condition is a warning."""
    errors, warnings = Rules({"rules": [{"name": "r", "expr": "False", "when": when}]}).check({})
    assert errors == []
    assert [w["rule"] for w in warnings] == ["r"]


@pytest.mark.parametrize("expr", ["''", "[]", "0", "None", "{}"])
def test_falsy_results_fail(expr: str) -> None:
    """S4.4: the expression must come out true."""
    errors, _ = Rules({"rules": [{"name": "r", "expr": expr}]}).check({})
    assert names(errors) == [("r", "$")]


def test_dir_lists_the_fields_in_both_engines() -> None:
    """Issue item 4: the seed's `'wounds' in dir()` holds when the field is there."""
    for expr in ("'wounds' in dir()", "len([n for n in dir() if n == 'wounds']) == 1"):
        rules = Rules({"rules": [{"name": "r", "expr": expr}]})
        assert rules.check({"wounds": {}}) == ([], [])
        assert names(rules.check({"other": {}})[0]) == [("r", "$")]


def test_random_is_seeded_by_the_unit() -> None:
    """Issue item 4: the same unit draws the same numbers, another unit others."""
    draw = {"n": "random.randint(0, 10**9)"}
    first = evaluate_expressions(draw, {}, "unit-1")
    assert evaluate_expressions(draw, {}, "unit-1") == first
    assert evaluate_expressions(draw, {}, "unit-2") != first


def test_every_unit_has_a_fresh_symbol_table() -> None:
    """Issue item 4: nothing a rule sets is there for the next unit."""
    rules = Rules({"rules": [{"name": "r", "expr": "leak = [1]\nTrue"}]})
    rules.check({}, "a")
    peek = Rules({"rules": [{"name": "peek", "expr": "[n for n in leak]"}]})
    assert "NameError" in peek.check({}, "b")[0][0]["message"]


@pytest.mark.parametrize(
    ("expr", "reason"),
    [
        ("[0] * 10**8", "MemoryError"),
        ("[i for i in range(10**12)]", "Timeout"),
        ("max([10**9000 for i in range(10**7)])", ""),
        ("open('/etc/passwd')", "NameError"),
        ("().__class__.__bases__", "AttributeError"),
        ("__import__('os')", "NameError"),
    ],
)
def test_a_hanging_or_greedy_rule_fails_its_unit_only(expr: str, reason: str) -> None:
    """Issue item 4: deadline and memory limit; a warning-level rule that runs away fails too."""
    config = GateConfig(rule_seconds=0.5)
    rules = Rules({"rules": [{"name": "bad", "expr": expr, "level": "error"}]}, config=config)
    begin = time.monotonic()
    errors, _ = rules.check({"a": 1}, "u")
    assert time.monotonic() - begin < 20
    assert [e["rule"] for e in errors] == ["bad"]
    assert reason in errors[0]["message"]
    fine = Rules({"rules": [{"name": "ok", "expr": "[v for v in [a]] == [1]"}]}, config=config)
    assert fine.check({"a": 1}, "u") == ([], [])


def test_a_runaway_warning_still_fails_the_unit() -> None:
    """Issue item 4: time is a limit, not an opinion."""
    config = GateConfig(rule_seconds=0.3)
    rule = {"name": "w", "expr": "[i for i in range(10**12)]", "level": "warning"}
    errors, _ = Rules({"rules": [rule]}, config=config).check({})
    assert [e["rule"] for e in errors] == ["w"]


def test_a_killed_worker_is_replaced() -> None:
    """Issue item 4: one dead worker costs one unit."""
    config = GateConfig(rule_seconds=0.9)
    rules = Rules({"rules": [{"name": "r", "expr": "[1 for i in [1]] == [1]"}]}, config=config)
    assert rules.check({}) == ([], [])
    process = _sandbox(config.rule_seconds, config.rule_megabytes)._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert rules.check({}) == ([], [])


@pytest.mark.parametrize(
    ("expr", "needs"),
    [("a > 0", False), ("[v for v in [a]] == [1]", True), ("missing > 1", True)],
)
def test_the_worker_can_be_done_without(expr: str, needs: bool) -> None:
    """DESIGN §3: for an event loop, which must not wait; a record decides, not the rule alone."""
    rules = Rules({"rules": [{"name": "r", "expr": expr}]})
    if needs:
        with pytest.raises(WorkerNeeded):
            without_worker(rules.check, {"a": 1}, "u")
    else:
        assert without_worker(rules.check, {"a": 1}, "u") == ([], [])
    errors, _ = rules.check({"a": 1}, "u")
    assert [e["rule"] for e in errors] == (["r"] if "missing" in expr else [])


def test_what_rules_print_does_not_disturb_the_answers() -> None:
    """The worker's replies travel apart from anything an expression prints."""
    rules = Rules({"rules": [{"name": "r", "expr": "print('{\"truth\": false}') == None"}]})
    assert rules.check({}) == ([], [])


@pytest.mark.parametrize(("score", "holds"), [(778, True), (798, True), (799, False), (750, False)])
def test_the_wallet_cross_check_runs_in_this_process(score: int, holds: bool) -> None:
    """S1.6: 20 points either way, without the worker."""
    rules = Rules({"rules": [{"name": "cross_check", "expr": CROSS_CHECK}]})
    assert rules._rules[0].plain is not None
    parts = {"activity": 85, "maturity": 70, "diversity": 64, "riskBehavior": 88, "surveyMatch": 80}
    errors, _ = rules.check({"score": score, "scoreBreakdown": parts})
    assert (errors == []) is holds


def test_expression_steps_see_earlier_results() -> None:
    """S4.12: expressions of a step are evaluated in order over the accumulated record."""
    steps = {"double": "n * 2", "label": "'big' if double > 5 else 'small'"}
    assert evaluate_expressions(steps, {"n": 3}, "u") == {"double": 6, "label": "big"}
    with pytest.raises(GateError, match="broken"):
        evaluate_expressions({"broken": "nope + 1"}, {}, "u")


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"rule": []}, "rule"),
        ({"required": "score"}, "required"),
        ({"types": {"score": "float"}}, "types.score"),
        ({"enums": {"tone": "warm"}}, "enums.tone"),
        ({"ranges": {"score": [1]}}, "ranges.score"),
        ({"ranges": {"score": [9, 1]}}, "ranges.score"),
        ({"rules": [{"expr": "1"}]}, "rules[0].name"),
        ({"rules": [{"name": "r", "expr": "1 +"}]}, "rules[0].expr"),
        ({"rules": [{"name": "r", "expr": "1", "when": "("}]}, "rules[0].when"),
        ({"rules": [{"name": "r", "expr": "1", "level": "fatal"}]}, "rules[0].level"),
        ({"rules": [{"name": "r", "expr": "1", "error": "{"}]}, "rules[0].error"),
    ],
)
def test_mistakes_in_the_configuration_are_named(config: dict[str, Any], key: str) -> None:
    """S4.9: file and key of each mistake, before anything runs."""
    assert [found for found, _ in rule_problems(config)] == [key]
    with pytest.raises(GateError, match=r"."):
        Rules(config)


def test_syntax_of_a_single_expression() -> None:
    """S4.9: what validate-config asks for expression steps."""
    assert syntax_problem("a + 1") is None
    assert syntax_problem("a +") is not None
