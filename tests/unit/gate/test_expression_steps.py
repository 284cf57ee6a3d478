"""Expression steps (SPEC S4.12): asteval in a bounded worker, seeded chance, loops."""

from __future__ import annotations

from typing import Any

import pytest

from assay_gate.config import GateConfig
from assay_gate.expression_config import parse_program
from assay_gate.expression_steps import ExpressionError, ExpressionProgram
from assay_gate.process_findings import Findings
from assay_gate.rules.sandbox import Sandbox


def program(step: str = "step", **settings: Any) -> ExpressionProgram:
    found = Findings()
    parsed = parse_program(step, settings, "pipeline.steps[0]", found)
    assert not found.all, found.all
    return parsed


WALK = {
    "init": {"position": "start", "path": "[start]", "steps": 0},
    "expressions": {
        "direction": "random.choice([-1, 1])",
        "position": "position + direction",
        "path": "path + [position]",
        "steps": "steps + 1",
    },
    "loop_until": "position <= 0 or position >= 4",
}


def test_expressions_run_in_order_and_see_the_record_and_each_other() -> None:
    """S4.12: fields of the record, then of the expressions before."""
    shown = program(expressions={"words": "len(text.split())", "long": "words > 2", "text": "'x'"})
    assert shown.run({"text": "one two three"}, "u") == {"words": 3, "long": True, "text": "x"}


def test_init_runs_once_and_the_loop_until_its_condition_holds() -> None:
    """S4.12: state is carried from one iteration to the next."""
    result = program(**WALK).run({"start": 2}, "u")
    assert result["position"] in (0, 4)
    assert result["path"][0] == 2
    assert result["path"][-1] == result["position"]
    assert len(result["path"]) == result["steps"] + 1
    assert all(abs(a - b) == 1 for a, b in zip(result["path"], result["path"][1:], strict=False))
    assert 0 not in result["path"][:-1]


def test_chance_is_the_units_and_the_steps() -> None:
    """S4.12: a redelivery draws the same; another unit or another step draws differently."""
    draw = {"cards": "random.sample(list(range(1000)), 20)"}
    first = program("a", expressions=draw).run({}, "unit-1")
    assert program("a", expressions=draw).run({}, "unit-1") == first
    assert program("a", expressions=draw).run({}, "unit-2") != first
    assert program("b", expressions=draw).run({}, "unit-1") != first


def test_another_worker_computes_the_same() -> None:
    """S4.12: a set's order must not depend on the worker, or a redelivery would differ."""
    words = [f"word{number}" for number in range(50)]
    tasks = [{"expr": "list(set(words))", "name": "found"}, {"expr": "hash('x')", "name": "hashed"}]
    seen = []
    for _ in range(2):
        sandbox = Sandbox(5, 512)
        seen.append(sandbox.evaluate(tasks, {"words": words}, "unit"))
        sandbox.close()
    assert seen[0] == seen[1]
    assert len(seen[0][0]["value"]) == 50
    assert program(expressions={"x": "words[0]"}).run({"words": words}, "u") == {"x": "word0"}
    with pytest.raises(ExpressionError):
        program(expressions={"place": "id(words)"}).run({"words": words}, "u")


def test_a_loop_that_never_ends_fails_at_its_bound() -> None:
    """S4.12: `max_iterations` bounds the loop, and reaching it is a failure, not a result."""
    endless = program(
        init={"n": "0"}, expressions={"n": "n + 1"}, loop_until="n < 0", max_iterations=7
    )
    with pytest.raises(ExpressionError) as caught:
        endless.run({}, "u")
    assert (caught.value.expression, caught.value.kind) == ("loop_until", "Timeout")
    assert "7 iterations" in str(caught.value)
    ends = program(init={"n": "0"}, expressions={"n": "n + 1"}, loop_until="n == 7",
                   max_iterations=7)  # fmt: skip
    assert ends.run({}, "u") == {"n": 7}


@pytest.mark.parametrize(
    ("settings", "expression", "kind"),
    [
        ({"expressions": {"a": "1", "b": "a + nothing"}}, "b", "NameError"),
        ({"init": {"a": "1 / 0"}, "expressions": {"b": "1"}}, "init.a", "ZeroDivisionError"),
        ({"expressions": {"a": "1"}, "loop_until": "a.b.c"}, "loop_until", "AttributeError"),
        ({"expressions": {"a": "set([1])"}}, "a", "TypeError"),
        ({"expressions": {"a": "float('nan')"}}, "a", "TypeError"),
        ({"expressions": {"a": "open('/etc/passwd')"}}, "a", "NameError"),
        ({"expressions": {"a": "().__class__.__bases__"}}, "a", "AttributeError"),
        ({"expressions": {"a": "[i for i in range(10**12)]"}}, "", ""),
        ({"expressions": {"a": "[0] * 10**9"}}, "", ""),
    ],
)
def test_a_failure_names_its_expression(
    settings: dict[str, Any], expression: str, kind: str
) -> None:
    """S4.12: which one and why; what hangs or is greedy is killed and harms nobody else."""
    with pytest.raises(ExpressionError) as caught:
        program(**settings).run({}, "u", GateConfig(rule_seconds=0.05))
    if kind:
        assert (caught.value.expression, caught.value.kind) == (expression, kind)
    assert program(expressions={"a": "1 + 1"}).run({}, "u") == {"a": 2}


def test_an_expression_cannot_break_out_of_its_place() -> None:
    """S4.12: each is exactly one expression; quotes and lines stay inside it."""
    tricky = program(expressions={"a": "'''one\ntwo''' + \"'\"", "b": "(\n1 +\n2\n)  # three"})
    assert tricky.run({}, "u") == {"a": "one\ntwo'", "b": 3}


@pytest.mark.parametrize(
    ("settings", "key", "reason"),
    [
        ({}, "pipeline.steps[0].expressions", "missing"),
        ({"expressions": {}}, "pipeline.steps[0].expressions", "at least one"),
        ({"expressions": {"a": "1 +"}}, "pipeline.steps[0].expressions.a", "syntax error"),
        ({"expressions": {"a": "b = 1"}}, "pipeline.steps[0].expressions.a", "syntax error"),
        ({"expressions": {"a": "1\n2"}}, "pipeline.steps[0].expressions.a", "syntax error"),
        ({"expressions": {"a": ""}}, "pipeline.steps[0].expressions.a", "must be an expression"),
        ({"expressions": {"a b": "1"}}, "pipeline.steps[0].expressions.a b", "field name"),
        ({"expressions": {"unit_id": "1"}}, "pipeline.steps[0].expressions.unit_id", "itself"),
        ({"expressions": {"_assay_at": "1"}}, "pipeline.steps[0].expressions._assay_at", "name"),
        ({"expressions": {"a": "1"}, "init": {"b": "("}}, "pipeline.steps[0].init.b", "syntax"),
        ({"expressions": {"a": "1"}, "loop_until": "a >"}, "pipeline.steps[0].loop_until", "syn"),
        ({"expressions": {"a": "1"}, "max_iterations": 0}, "pipeline.steps[0].max_iterations",
         "above 0"),
        ({"expressions": {"a": "1"}, "max_iterations": 10**9},
         "pipeline.steps[0].max_iterations", "at most"),
    ],
)  # fmt: skip
def test_a_wrong_expression_is_named(settings: dict[str, Any], key: str, reason: str) -> None:
    """S4.9: before anything runs, with its key."""
    found = Findings()
    parse_program("s", settings, "pipeline.steps[0]", found)
    (mistake,) = found.mistakes
    assert (mistake.file, mistake.key) == ("config.yaml", key)
    assert reason in mistake.message
