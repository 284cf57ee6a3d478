"""Instances of particular JSON Schemas, judged by the reference validator (issue: any schema)."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from deploy.dev.simulator.instances import BadSchema, NoInstance, SchemaAnswers
from tests.unit.dev.wallet_calls import REPO

SEEDS = [str(number) for number in range(8)]
COUNTRY_AND_ZIP = {
    "type": "object",
    "required": ["country"],
    "properties": {"country": {"enum": ["US", "NL"]}, "zip": {"type": "string"}},
    "if": {"properties": {"country": {"const": "US"}}},
    "then": {"required": ["zip"], "properties": {"zip": {"pattern": "^\\d{5}$"}}},
    "else": {"properties": {"zip": {"pattern": "^[0-9]{4} [A-Z]{2}$"}}},
}
EXPRESSION = {
    "$defs": {
        "term": {
            "oneOf": [
                {"type": "number"},
                {
                    "type": "object",
                    "required": ["op", "a", "b"],
                    "properties": {
                        "op": {"enum": ["+", "-"]},
                        "a": {"$ref": "#/$defs/term"},
                        "b": {"$ref": "#/$defs/term"},
                    },
                },
            ]
        }
    },
    "$ref": "#/$defs/term",
}
FORMATS = (
    "date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid",
    "uri-reference", "json-pointer", "relative-json-pointer", "regex",
)  # fmt: skip
SCHEMAS: dict[str, Any] = {
    "anything": True,
    "empty": {},
    "type union": {"type": ["string", "null", "integer"]},
    "const": {"const": {"a": [1, None]}},
    "enum and type": {"type": "integer", "enum": [1.5, 2, "x"]},
    "bounds": {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5},
    "fractional bounds of an integer": {"type": "integer", "minimum": 0.5, "maximum": 1.5},
    "narrow number": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e-9},
    "256 bits": {"type": "integer", "minimum": 2**64, "maximum": 2**256 - 1},
    "multiples": {"allOf": [{"multipleOf": 4}, {"multipleOf": 6}], "type": "integer",
                  "minimum": 13, "maximum": 30},
    "decimal multiple": {"type": "number", "multipleOf": 0.25, "minimum": 1, "maximum": 2},
    "lengths": {"type": "string", "minLength": 41, "maxLength": 41},
    "address": {"type": "string", "pattern": "^0x[0-9a-f]{40}$"},
    "alternation": {"type": "string", "pattern": "^(GB|UK-[A-Z]{2}|(?:x|yy)+z?)$"},
    "pattern and length": {"type": "string", "pattern": "^[a-z]+( [a-z]+)*$",
                           "minLength": 90, "maxLength": 92},
    "pattern without anchors": {"type": "string", "pattern": "[A-Z]$", "minLength": 300},
    "look-ahead": {"type": "string", "pattern": "^(?=.*[A-Z])(?=.*\\d)[A-Za-z\\d]{8,}$"},
    "back-reference": {"type": "string", "pattern": "^(['\"])[a-z]+\\1$"},
    "two patterns": {"allOf": [{"pattern": "^a"}, {"pattern": "z$"}], "type": "string"},
    "formats": {"type": "object", "required": list(FORMATS),
                "properties": {name: {"type": "string", "format": name} for name in FORMATS}},
    "closed object": {"type": "object", "properties": {"a": {"type": "null"}},
                      "required": ["a"], "additionalProperties": False},
    "map": {"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 3},
    "pattern properties": {"type": "object", "additionalProperties": False, "minProperties": 3,
                           "patternProperties": {"^x-[a-z]{3}$": {"type": "integer"}}},
    "property names": {"type": "object", "propertyNames": {"pattern": "^[A-Z]{4}$"},
                       "minProperties": 2},
    "at most one": {"type": "object", "maxProperties": 1,
                    "properties": {name: {"type": "integer"} for name in "abc"}},
    "a property named like a keyword": {"type": "object", "required": ["$ref", "enum"],
                                        "properties": {"$ref": {"type": "string"},
                                                       "enum": {"type": "integer"}}},
    "tuple": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}],
              "items": False, "minItems": 2},
    "unique": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True,
               "minItems": 3},
    "contains": {"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 1000},
                 "minContains": 2, "maxContains": 2, "minItems": 4},
    "list": {"$defs": {"n": {"type": "object", "required": ["next"],
                             "properties": {"next": {"anyOf": [{"$ref": "#/$defs/n"},
                                                               {"type": "null"}]}}}},
             "$ref": "#/$defs/n"},
    "array of itself": {"type": "array", "items": {"$ref": "#"}},
    "expression": EXPRESSION,
    "anchor": {"$defs": {"x": {"$anchor": "here", "type": "integer"}}, "type": "array",
               "items": {"$ref": "#here"}, "minItems": 1},
    "named resource": {"$id": "https://a.example/root", "$ref": "item", "$defs": {
        "x": {"$id": "item", "$ref": "#/$defs/y", "$defs": {"y": {"const": 5}}}}},
    "oneOf that overlaps": {"oneOf": [{"type": "integer", "minimum": 5},
                                      {"type": "integer", "maximum": 10}]},
    "anyOf of requirements": {"type": "object", "additionalProperties": False,
                              "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
                              "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}},
    "allOf, sealed": {"allOf": [{"type": "object", "required": ["a"],
                                 "properties": {"a": {"type": "integer", "minimum": 5}}},
                                {"properties": {"a": {"maximum": 7}, "b": {"const": 3}},
                                 "required": ["b"]}],
                      "unevaluatedProperties": False},
    "allOf of bounds": {"type": "integer", "allOf": [{"minimum": 3, "maximum": 9},
                                                     {"minimum": 8, "maximum": 60}]},
    "not required": {"type": "object", "properties": {"a": {"type": "integer"}},
                     "not": {"required": ["a"]}},
    "not these": {"enum": ["a", "b", "c"], "not": {"enum": ["a", "b"]}},
    "not of a type": {"not": {"type": ["string", "number"]}},
    "not of a value inside": {"type": "object", "required": ["k"],
                              "properties": {"k": {"type": "integer", "minimum": 0, "maximum": 3}},
                              "not": {"properties": {"k": {"maximum": 2}}}},
    "if": COUNTRY_AND_ZIP,
    "dependent": {"type": "object", "properties": {"card": {"type": "string"}},
                  "dependentRequired": {"card": ["address"]}, "required": ["card"],
                  "dependentSchemas": {"card": {"properties": {"n": {"const": 9}},
                                                "required": ["n"]}}},
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_instance_is_valid_and_repeats(name: str) -> None:
    schema = SCHEMAS[name]
    reference = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    for seed in SEEDS:
        value = SchemaAnswers(schema).instance(seed)
        reference.validate(value)
        assert json.loads(json.dumps(value)) == value
        assert SchemaAnswers(schema).instance(seed) == value


def test_instances_vary_and_reach_every_branch() -> None:
    found = [SchemaAnswers(COUNTRY_AND_ZIP).instance(str(seed)) for seed in range(40)]
    assert {value["country"] for value in found} == {"US", "NL"}
    terms = [SchemaAnswers(EXPRESSION).instance(str(seed)) for seed in range(40)]
    assert {type(term) for term in terms} >= {dict, float}
    address = SchemaAnswers(SCHEMAS["address"])
    assert len({address.instance(str(seed)) for seed in range(40)}) == 40


def test_patterns_in_ecma_spelling_are_met() -> None:
    """Python cannot read these two, so there is no reference validator for them."""
    capital = SchemaAnswers({"type": "string", "pattern": "^\\p{Lu}[\\p{L} ]+$"}).instance("1")
    assert capital[0].isupper()
    named = SchemaAnswers({"type": "string", "pattern": "^(?<y>\\d{4})-(?<m>\\d\\d)$"})
    assert len(named.instance("1")) == 7


def test_the_draft_a_schema_names_is_the_draft_it_is_read_by() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": [{"type": "string"}, {"type": "integer"}],
        "additionalItems": False,
        "minItems": 2,
    }
    jsonschema.Draft7Validator(schema).validate(SchemaAnswers(schema).instance("1"))


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "integer", "minimum": 5, "maximum": 4}, "maximum"),
        ({"type": "integer", "multipleOf": 10, "minimum": 1, "maximum": 9}, "multipleOf"),
        ({"type": "string", "pattern": "^a$", "minLength": 5}, "pattern"),
        ({"type": "string", "minLength": 5, "maxLength": 4}, "minLength"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "additionalProp"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "type"),
        ({"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 3},
         "uniqueItems"),
        ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, "$ref"),
        ({"$ref": "#"}, "$ref"),
        ({"not": {}}, "not"),
        (False, "false"),
    ],
)  # fmt: skip
def test_what_cannot_be_met_is_named(schema: Any, keyword: str) -> None:
    with pytest.raises(NoInstance) as caught:
        SchemaAnswers(schema).instance("1")
    assert caught.value.keyword.startswith(keyword)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "schema", [{"type": "int"}, {"$ref": "#/$defs/no"}, {"$ref": "https://a.example/far"}]
)
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(BadSchema):
        SchemaAnswers(schema)


@pytest.mark.parametrize(
    "path", sorted((REPO / "schemas").rglob("*.schema.json")), ids=lambda path: path.name
)
def test_every_published_schema_is_answered(path: Any) -> None:
    """The schemas of this repository are what the simulator meets first."""
    schema = json.loads(path.read_text(encoding="utf-8"))
    answers = SchemaAnswers(schema)
    for seed in SEEDS[:3]:
        jsonschema.Draft202012Validator(schema).validate(answers.instance(seed))


def test_every_schema_of_the_gate_corpus_is_answered() -> None:
    corpus = REPO.parent / "shared" / "corpora" / "gate.jsonl"
    if not corpus.exists():
        pytest.skip("the corpus is not here")
    lines = corpus.read_text(encoding="utf-8").splitlines()
    for schema in {json.dumps(json.loads(line)["schema"], sort_keys=True) for line in lines}:
        value = SchemaAnswers(json.loads(schema)).instance("1")
        jsonschema.Draft202012Validator(json.loads(schema)).validate(value)
