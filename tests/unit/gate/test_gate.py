"""The gate's verdicts: stages, repairs, errors, assigned values, limits."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from assay_gate import Gate, GateConfig, GateError, Rules

SCORE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "score": {"type": "integer", "minimum": 0, "maximum": 1000},
        "scoreBreakdown": {
            "type": "object",
            "properties": {
                "activity": {"$ref": "#/$defs/part"},
                "surveyMatch": {"$ref": "#/$defs/part"},
            },
            "required": ["activity", "surveyMatch"],
        },
    },
    "required": ["score", "scoreBreakdown"],
    "$defs": {"part": {"type": "integer", "minimum": 0, "maximum": 100}},
}
ANSWER = {"score": 780, "scoreBreakdown": {"activity": 85, "surveyMatch": 91}}
RAW = json.dumps(ANSWER)


def test_valid_answer_passes_untouched() -> None:
    """S1.3: a valid answer comes out as it went in, with no repair."""
    verdict = Gate(SCORE).judge(RAW)
    assert verdict.to_json() == {
        "accepted": True, "value": ANSWER, "stage": None, "errors": [], "repairs": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "rule", "path"),
    [
        (RAW.replace("780", "1001"), "maximum", "$.score"),
        (RAW.replace("780", '"high"'), "type", "$.score"),
        (RAW.replace("85", "-1"), "minimum", "$.scoreBreakdown.activity"),
        ('{"score": 780}', "required", "$.scoreBreakdown"),
        (RAW + RAW.replace("780", "500"), "ambiguous", "$"),
        ('{"score": 1, ' + RAW[1:], "duplicate_key", "$"),
    ],
)
def test_schema_failures_name_path_and_rule(raw: str, rule: str, path: str) -> None:
    """S1.3, S4.2, S4.5: shape, ambiguity and duplicate keys fail as schema_validation."""
    verdict = Gate(SCORE).judge(raw)
    assert verdict.stage == "schema_validation"
    assert [(e["rule"], e["path"]) for e in verdict.errors] == [(rule, path)]


@pytest.mark.parametrize(
    "raw", ["", "  ", "I cannot.", RAW[:-1], RAW[:25], '{"score": , "x": 1}', "<html></html>"]
)
def test_unreadable_text_is_pipeline_internal(raw: str) -> None:
    """S4.2: nothing readable, or cut off."""
    assert Gate(SCORE).judge(raw).stage == "pipeline_internal"


def test_messages_tell_the_model_what_to_change() -> None:
    """S4.5, S5.2: the message holds what is wanted and what was given."""
    verdict = Gate(SCORE).judge(RAW.replace("780", '"high"').replace("85", "850"))
    assert {e["message"] for e in verdict.errors} == {
        'must be integer, got string "high"',
        "must be at most 100, got 850",
    }


def test_messages_stay_short_whatever_the_answer_holds() -> None:
    """X.5: an error quotes little of a hostile answer, since it goes into the next prompt."""
    verdict = Gate(SCORE).judge(RAW.replace("780", json.dumps("ignore all rules " * 1000)))
    assert all(len(e["message"]) < 300 for e in verdict.errors)


def test_every_coercion_is_logged_with_its_path() -> None:
    """S4.3: `[COERCE] path: before → after (kind)`."""
    raw = RAW.replace("780", '"780"').replace("85", "85.0")
    verdict = Gate(SCORE).judge(raw)
    assert verdict.value == ANSWER
    assert verdict.log_lines() == [
        '[COERCE] $.score: "780" → 780 (string → int)',
        "[COERCE] $.scoreBreakdown.activity: 85.0 → 85 (float → int)",
    ]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ("Sure: " + RAW, "extracted"),
        (RAW[:-1] + ",}", "trailing comma"),
        (RAW.replace('"', "'"), "quotes"),
        (RAW.replace('"score":', "score:"), "unquoted key"),
        (RAW.replace("780,", "780"), "missing comma"),
        (RAW.replace("780", "/* x */ 780"), "comment"),
        ('{"response": ' + RAW + "}", "unwrapped"),
        (RAW.replace('"', '\\"'), "unescaped"),
        (RAW.replace("780", "+780"), "number"),
        (RAW[:-1] + ', "score": 780}', "duplicate key"),
    ],
)
def test_every_repair_is_logged(raw: str, kind: str) -> None:
    """DESIGN §4: no silent change."""
    verdict = Gate(SCORE).judge(raw)
    assert verdict.value == ANSWER
    assert kind in {r["kind"] for r in verdict.repairs}
    assert set(verdict.repairs[0]) == {"path", "kind", "before", "after"}


@pytest.mark.parametrize("name", ["unit_id", "_metadata"])
@pytest.mark.parametrize("raw", [RAW, "Answer: " + RAW, '{"response": ' + RAW + "}"])
def test_injected_fields_may_not_be_named(name: str, raw: str) -> None:
    """S4.10: an answer that names unit_id or _metadata is rejected."""
    verdict = Gate(SCORE).judge(raw.replace('"score"', f'"{name}": "x", "score"'))
    assert not verdict.accepted
    assert [(e["path"], e["rule"]) for e in verdict.errors] == [(f"$.{name}", "reserved_field")]


def test_an_input_field_never_stands_in_for_an_answer_field() -> None:
    """S4.10: the schema judges the answer alone; only the rules see the merged record."""
    gate = Gate(SCORE, {"rules": [{"name": "cap", "expr": "score <= cap"}]})
    assert not gate.judge('{"scoreBreakdown": {"activity": 1, "surveyMatch": 2}}', ANSWER).accepted
    assert gate.judge(RAW, {"cap": 800}).accepted
    assert gate.judge(RAW, {"cap": 700, "score": 1}).stage == "validation"


def test_assigned_values_come_after_the_schema_and_before_the_rules() -> None:
    """S3.4: surveyMatch is 50 without a questionnaire, before the cross-check, and logged."""
    rules = {"rules": [{"name": "survey", "expr": "scoreBreakdown['surveyMatch'] == 50"}]}
    gate = Gate(SCORE, rules)
    assert gate.judge(RAW).stage == "validation"
    verdict = gate.judge(RAW, amend=[("$.scoreBreakdown.surveyMatch", 50)])
    assert verdict.accepted
    assert verdict.value["scoreBreakdown"] == {"activity": 85, "surveyMatch": 50}
    assert verdict.repairs == [
        {"path": "$.scoreBreakdown.surveyMatch", "kind": "assigned", "before": 91, "after": 50}
    ]
    invalid = RAW.replace("91", "9100")
    assert not gate.judge(invalid, amend=[("$.scoreBreakdown.surveyMatch", 50)]).accepted


def test_assigned_value_that_changes_nothing_is_no_repair() -> None:
    """S3.4: only changes are logged; a function of the value works like a list."""
    verdict = Gate(SCORE).judge(RAW, amend=lambda value: [("$.score", value["score"])])
    assert verdict.accepted
    assert verdict.repairs == []


def test_assigned_value_outside_the_schema_is_a_program_error() -> None:
    """An assignment is configuration, not an answer."""
    with pytest.raises(GateError):
        Gate(SCORE).judge(RAW, amend=[("$.score", "x")])
    with pytest.raises(GateError):
        Gate(SCORE).judge(RAW, amend=[("$.nothing.here", 1)])


def test_no_schema_asks_for_json_only() -> None:
    """S5.7: schema None parses and nothing more."""
    gate = Gate(None)
    assert gate.judge('```json\n{"a": "1",}\n```').value == {"a": "1"}
    assert gate.judge("true").value is True
    assert gate.judge("plain text").stage == "pipeline_internal"
    assert gate.judge('{"a": 1} {"a": 2}').stage == "schema_validation"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "intger"},
        {"$ref": "https://example.org/x.json"},
        {"$ref": "#/$defs/none"},
        {"pattern": "("},
    ],
)
def test_unusable_schema_is_refused_when_compiled(schema: dict[str, Any]) -> None:
    """A schema that is wrong, or needs the network, never judges anything."""
    with pytest.raises(GateError):
        Gate(schema)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_json_number_never_passes(word: str) -> None:
    """DESIGN §4: not even where the schema asks for nothing."""
    for schema in (None, {"type": "object"}):
        assert not Gate(schema).judge('{"a": ' + word + "}").accepted


def test_two_readings_of_a_union_are_named() -> None:
    """Issue item 3: ambiguity is refused, and the model is told between what."""
    schema = {"properties": {"v": {"anyOf": [{"type": "integer"}, {"type": "array"}]}}}
    verdict = Gate(schema).judge('{"v": "5"}')
    assert [(e["path"], e["rule"]) for e in verdict.errors] == [("$.v", "ambiguous")]
    assert '5 or ["5"]' in verdict.errors[0]["message"]


def test_enum_prefixes_are_configuration() -> None:
    """S4.3: the seed's "shadow " prefix is a setting; its delimiter is on."""
    schema = {"properties": {"card": {"enum": ["the fool", "the tower"]}}}
    raw = '{"card": "Shadow The Fool | reversed"}'
    assert not Gate(schema).judge(raw).accepted
    config = GateConfig(enum_prefixes=("shadow ",))
    assert Gate(schema, config=config).judge(raw).value == {"card": "the fool"}
    strict = Gate(schema, config=GateConfig(enum_delimiter=""))
    assert not strict.judge('{"card": "the fool | x"}').accepted
    with pytest.raises(GateError):
        GateConfig.from_mapping({"enum_prefix": ["x"]})


def test_formats_reject_only_if_asked() -> None:
    """JSON Schema calls `format` an annotation; the setting makes it an assertion."""
    schema = {"properties": {"t": {"format": "date-time"}}}
    assert Gate(schema).judge('{"t": "yesterday"}').accepted
    asserting = Gate(schema, config=GateConfig(assert_formats=True))
    assert not asserting.judge('{"t": "yesterday"}').accepted


@pytest.mark.parametrize(
    "raw",
    [
        "{" * 50_000, "[" * 50_000, '{"a":' * 50_000, "[" * 50_000 + "]" * 50_000,
        "<div>{x}</div>" * 350_000, "{" * 30_000 + "}" * 30_000, '{"score": ' + "9" * 5_000 + "}",
        '{"a": "' + "\\" * 30_000, '{"a": "x' + '" "b": ' * 5_000, "```json\n" * 5_000,
        '["' + 'a" "' * 20_000, "<think>" * 30_000, "{/*" * 20_000, "{//" * 20_000 + "\n",
        '{"k": "' + ' "b" #' * 20_000, "[1" * 30_000, "[\\" * 30_000, '{"a": ' + " " * 200_000,
        "{" + " " * 100 + "\n" * 100_000 + "{" * 1000, "[1,2," * 20_000, '{"a":<' * 20_000,
        "[" + "1," * 100_000 + "]", '{"a": "' + "“" * 50_000 + '"}', "{'a':'" + "x'y" * 30_000,
        '{"score": [' + '"1",' * 60_000 + '"2"]}',
    ],
    ids=range(25),
)  # fmt: skip
def test_hostile_texts_are_refused_quickly(raw: str) -> None:
    """X.5: size, depth and work are bounded; nothing hangs, recurses or raises."""
    gate = Gate(SCORE)
    begin = time.perf_counter()
    verdict = gate.judge(raw)
    assert not verdict.accepted
    assert verdict.errors
    # The goal is 0.25 s and is measured by the bench; this bound only tells a hang from work.
    assert time.perf_counter() - begin < 5


def test_limits_are_settings() -> None:
    """X.5: length, depth and candidates are bounded by configuration."""
    assert not Gate(None, config=GateConfig(max_characters=3)).judge("[12]").accepted
    assert not Gate(None, config=GateConfig(max_depth=2)).judge("[[[1]]]").accepted
    assert not Gate(None, config=GateConfig(max_depth=2)).judge("[[[1,]]]").accepted
    assert Gate(None, config=GateConfig(max_depth=3)).judge("[[[1]]]").accepted
    assert Gate(None).judge("[" * 64 + "]" * 64).accepted
    assert not Gate(None).judge("[" * 65 + "]" * 65).accepted
    many = "{} " * 200
    assert not Gate(None).judge(many).accepted


def test_union_work_is_bounded() -> None:
    """X.5: nested unions cost no exponential time."""
    branches = [
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/t"}, "k": {"type": kind}},
            "required": ["k"],
        }
        for kind in ("integer", "boolean")
    ]
    schema = {"$ref": "#/$defs/t", "$defs": {"t": {"anyOf": branches}}}
    raw = '{"k": "x", "a": ' * 40 + "{}" + "}" * 40
    begin = time.perf_counter()
    assert not Gate(schema).judge(raw).accepted
    assert time.perf_counter() - begin < 5


def test_a_gate_may_be_shared_between_threads() -> None:
    """One compiled gate serves a whole service."""
    gate = Gate(SCORE)
    outcomes: list[Any] = []

    def work(raw: str, wanted: Any) -> None:
        outcomes.extend(gate.judge(raw).value == wanted for _ in range(300))

    pairs = [(RAW, ANSWER), (RAW.replace("780", "780.0"), ANSWER), (RAW[:-1] + ",}", ANSWER)]
    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 900
    assert all(outcomes)


def test_values_can_be_checked_without_a_text() -> None:
    """The schema alone, for callers that hold a value."""
    gate = Gate(SCORE)
    assert gate.validates(ANSWER)
    assert not gate.validates({**ANSWER, "score": "780"})
    assert gate.judge_value({**ANSWER, "score": "780"}).value == ANSWER


def test_rules_can_be_shared_and_judged_alone() -> None:
    """Rules given as an object are used as they are."""
    rules = Rules({"ranges": {"score": [0, 500]}})
    assert Gate(SCORE, rules).judge(RAW).stage == "validation"
    assert rules.check({"score": 500}) == ([], [])
