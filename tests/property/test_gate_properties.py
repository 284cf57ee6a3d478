"""Properties of the gate over random schemas, values and texts (DESIGN §4, issue items 2 and 7)."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_gate import Gate
from tests.fuzz.gate_fuzz import Maker, fuzz

WALLET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "score": {"type": "integer", "minimum": 0, "maximum": 1000},
        "scoreBreakdown": {
            "type": "object",
            "properties": {
                "activity": {"$ref": "#/$defs/part"},
                "maturity": {"$ref": "#/$defs/part"},
            },
            "required": ["activity", "maturity"],
        },
        "reasoning": {"type": "string", "minLength": 10, "maxLength": 500},
        "risk_factors": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["score", "scoreBreakdown", "reasoning", "risk_factors"],
    "$defs": {"part": {"type": "integer", "minimum": 0, "maximum": 100}},
}
GATE = Gate(WALLET)
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "v": {"type": "integer"},
                "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
        }
    },
}
VALUE = {
    "score": 780,
    "scoreBreakdown": {"activity": 85, "maturity": 70},
    "reasoning": 'Uses {curly}, [square], "quotes", it\'s // fine, # too — 日本 🚀.',
    "risk_factors": ["High token concentration", "x, y", "```json"],
}
seeds = st.integers(min_value=0, max_value=2**40)
answers = st.fixed_dictionaries(
    {
        "score": st.integers(0, 1000),
        "scoreBreakdown": st.fixed_dictionaries(
            {"activity": st.integers(0, 100), "maturity": st.integers(0, 100)}
        ),
        "reasoning": st.text(st.characters(codec="utf-8"), min_size=10, max_size=60),
        "risk_factors": st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=3),
    }
)


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(answers, st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=150, deadline=None)
def test_valid_json_is_never_changed(answer: Any, ascii_only: bool, indent: int | None) -> None:
    """Principle: a value that already validates is left as it is, whatever its strings hold."""
    verdict = GATE.judge(json.dumps(answer, ensure_ascii=ascii_only, indent=indent))
    assert verdict.accepted
    assert exact(verdict.value) == exact(answer)
    assert verdict.repairs == []


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("schema", [WALLET, None, TREE], ids=["wallet", "none", "tree"])
def test_every_strict_prefix_is_rejected(schema: Any, indent: int | None) -> None:
    """Rule 2: nothing that is cut off passes, the last brace included, in or out of a fence."""
    gate = Gate(schema)
    value = {"v": 1, "kids": [{"v": 2, "kids": [{"v": 3}]}, {}]} if schema is TREE else VALUE
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    assert gate.judge(text).accepted
    python = repr(value)
    for length in range(len(text)):
        fenced = "Here:\n```json\n" + text[:length]
        for prefix in (text[:length], fenced, python[: min(length, len(python) - 1)]):
            verdict = gate.judge(prefix)
            assert not verdict.accepted, prefix
            assert verdict.stage == "pipeline_internal", prefix


@given(seeds)
@settings(max_examples=150, deadline=None)
def test_every_strict_prefix_of_a_random_answer_is_rejected(seed: int) -> None:
    """Rule 2, for random schemas."""
    maker = Maker(seed)
    schema, value = maker.object(2)
    gate, text = Gate(schema), json.dumps(value)
    for length in range(len(text)):
        assert not gate.judge(text[:length]).accepted, text[:length]


@given(seeds)
@settings(max_examples=300, deadline=None)
def test_harmless_decoration_never_changes_the_value(seed: int) -> None:
    """Rule 3 and the principle: fences, prose, tags, thinking and commas carry no meaning."""
    maker = Maker(seed)
    schema, value = maker.object(3)
    text = maker.decorated(value)
    verdict = Gate(schema).judge(text)
    assert verdict.accepted, (text, verdict.errors)
    assert exact(verdict.value) == exact(value)


FAULTS = {
    "trailing comma": lambda text: text[:-1] + ",}",
    "fence": lambda text: f"```json\n{text}\n```",
    "prose": lambda text: f"Sure:\n{text}\nDone.",
    "comment": lambda text: "{ /* c */" + text[1:],
    "unquoted key": lambda text: text.replace('"pad"', "pad", 1),
    "other quotes": lambda text: text.replace('"pad"', "'pad'", 1),
    "literal": lambda text: text.replace("null", "None", 1),
    "wrapper": lambda text: '{"response": ' + text + "}",
}
SCALARS: list[Any] = [
    "7", 7, "7.0", 7.0, "true", True, None, "null", "a", "A", "a, b", "", "7 8", [7], ["7"], {},
]  # fmt: skip
TYPES: list[Any] = [
    {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": "string"},
    {"type": ["integer", "string"]}, {"type": ["integer", "null"]}, {"type": ["number", "boolean"]},
    {"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"enum": ["a", "b", 7]}, {},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]},
    {"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "integer"}},
    {"oneOf": [{"type": "integer"}, {"const": "a"}]},
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", TYPES, ids=json.dumps)
def test_an_irrelevant_fault_never_changes_how_another_value_is_read(kind: Any, fault: str) -> None:
    """Issue item 2: with and without the fault, the same verdict and the same value."""
    schema = {"type": "object", "properties": {"v": kind, "pad": {}}, "required": ["v", "pad"]}
    gate = Gate(schema)
    for scalar in SCALARS:
        text = json.dumps({"pad": None, "v": scalar})
        clean, faulty = gate.judge(text), gate.judge(FAULTS[fault](text))
        assert faulty.accepted is clean.accepted, (scalar, faulty.errors)
        assert exact(faulty.value) == exact(clean.value)


@given(seeds)
@settings(max_examples=200, deadline=None)
def test_both_validators_agree_on_random_schemas(seed: int) -> None:
    """DESIGN §4: jsonschema is the cross-check of jsonschema-rs."""
    maker = Maker(seed)
    schema, value = maker.pair(3)
    _, other = maker.pair(3)
    gate, reference = Gate(schema), jsonschema.Draft202012Validator(schema)
    assert gate.validates(value)
    for candidate in (value, other):
        assert gate.validates(candidate) == reference.is_valid(candidate)


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_gets_a_verdict(text: str) -> None:
    """X.5: no text raises, and a rejection has a reason and a stage."""
    verdict = GATE.judge(text)
    assert not verdict.accepted
    assert verdict.errors
    assert verdict.stage in ("pipeline_internal", "schema_validation")


def test_fuzzing_finds_nothing_within_its_budget() -> None:
    """Issue item 7: a fixed budget here, hours with `make fuzz`."""
    tried, faults = fuzz(12_000, seed=20_261_121, seconds=20)
    assert faults == []
    assert tried > 1_000
