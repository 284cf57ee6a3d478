"""The compatibility checker itself, with one planted edit per kind (DESIGN §2)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from assay.compatibility import breaks_between
from assay.contracts import load_schema

Edit = Callable[[dict[str, Any]], Any]

OLD: dict[str, Any] = {
    "title": "Thing",
    "type": "object",
    "required": ["kind", "n"],
    "properties": {
        "kind": {"const": "a"},
        "n": {"type": "integer", "minimum": 0, "maximum": 100},
        "word": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9},
        "colour": {"enum": ["red", "green"], "type": "string"},
        "level": {"type": "integer", "enum": [1, 2, 3]},
        "flag": {"type": "boolean", "default": False},
        "list": {"type": "array", "items": {"$ref": "#/$defs/part"}, "minItems": 1},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "closed": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"x": {"type": "number"}},
        },
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "tree": {"$ref": "#/$defs/tree"},
        "both": {"$ref": "#/$defs/part", "minProperties": 1},
    },
    "$defs": {
        "part": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
        "tree": {
            "type": "object",
            "properties": {
                "children": {
                    "anyOf": [
                        {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                        {"type": "null"},
                    ]
                }
            },
        },
    },
}


def prop(name: str, **changes: Any) -> Edit:
    """Edit that sets keywords of a property; None removes one."""

    def edit(schema: dict[str, Any]) -> None:
        for keyword, value in changes.items():
            if value is None:
                del schema["properties"][name][keyword]
            else:
                schema["properties"][name][keyword] = value

    return edit


def part(schema: dict[str, Any]) -> Any:
    return schema["$defs"]["part"]


BREAKING: dict[str, tuple[str, Edit]] = {
    "type changed": ("type", prop("n", type="number")),
    "type widened": ("type", prop("word", type=["string", "null"])),
    "type removed": ("type", prop("flag", type=None)),
    "const changed": ("values", prop("kind", const="b")),
    "const that only looks equal": ("values", prop("kind", const=["a"])),
    "enum narrowed": ("values", prop("colour", enum=["red"])),
    "enum narrowed beside a type": ("values", prop("level", enum=[1, 2])),
    "enum widened": ("values", prop("colour", enum=["red", "green", "blue"])),
    "enum removed": ("values", prop("colour", enum=None)),
    "enum of 1 became true": ("values", prop("level", enum=[True, 2, 3])),
    "maximum lowered": ("maximum", prop("n", maximum=99)),
    "maximum raised": ("maximum", prop("n", maximum=101)),
    "minimum removed": ("minimum", prop("n", minimum=None)),
    "bound added": ("exclusiveMaximum", prop("n", exclusiveMaximum=1000)),
    "pattern changed": ("pattern", prop("word", pattern="^[a-z0-9]+$")),
    "length changed": ("maxLength", prop("word", maxLength=8)),
    "format added": ("format", prop("word", format="date-time")),
    "minItems raised": ("minItems", prop("list", minItems=2)),
    "default changed": ("default", prop("flag", default=True)),
    "default went": ("default", prop("flag", default=None)),
    "property removed": ("removed property", lambda s: s["properties"].pop("word")),
    "property newly required": ("new required", lambda s: s["required"].append("word")),
    "property no longer required": ("no longer required", lambda s: s["required"].remove("n")),
    "new property, required": (
        "new required",
        lambda s: (s["required"].append("extra"), s["properties"].update(extra={})),
    ),
    "object closed": ("closed object", lambda s: s.update(additionalProperties=False)),
    "object opened": ("opened object", prop("closed", additionalProperties=True)),
    "closed object gained a property": (
        "closed object",
        prop("closed", properties={"x": {"type": "number"}, "y": {}}),
    ),
    "property that the rest's schema forbids": (
        "type",
        prop("counts", properties={"name": {"type": "string"}}),
    ),
    "values of a map changed": ("type", prop("counts", additionalProperties={"type": "string"})),
    "definition behind a $ref changed": (
        "type",
        lambda s: part(s)["properties"]["id"].update(type="integer"),
    ),
    "definition behind a $ref closed": (
        "closed object",
        lambda s: part(s).update(additionalProperties=False),
    ),
    "items point elsewhere": ("type", prop("list", items={"type": "string"})),
    "branch removed": ("anyOf", prop("maybe", anyOf=[{"type": "string"}])),
    "branch changed": ("type", prop("maybe", anyOf=[{"type": "integer"}, {"type": "null"}])),
    "deep in a recursive definition": (
        "anyOf",
        lambda s: s["$defs"]["tree"]["properties"]["children"]["anyOf"].pop(),
    ),
    "constraint beside a $ref changed": ("minProperties", prop("both", minProperties=2)),
    "keyword the checker does not know": ("x-unit", prop("n", **{"x-unit": "ms"})),
    "condition added": ("if", lambda s: s.update({"if": {"required": ["word"]}})),
}

HARMLESS: dict[str, Edit] = {
    "nothing": lambda s: None,
    "title and description": lambda s: s.update(title="Other", description="more words"),
    "new optional property": lambda s: s["properties"].update(extra={"type": "string"}),
    "new optional object": lambda s: s["properties"].update(
        extra={"type": "object", "required": ["x"], "additionalProperties": False}
    ),
    "new optional property in a part": lambda s: part(s)["properties"].update(more={}),
    "order of required": lambda s: s["required"].reverse(),
    "order of an enum": prop("colour", enum=["green", "red"]),
    "const written as enum": prop("kind", enum=["a"], const=None),
    "order of branches": prop("maybe", anyOf=[{"type": "null"}, {"type": "string"}]),
    "definition renamed": lambda s: (
        s["$defs"].update(piece=part(s)),
        s["properties"]["list"].update(items={"$ref": "#/$defs/piece"}),
    ),
    "definition written out": lambda s: s["properties"]["list"].update(items=part(s)),
    "additionalProperties said aloud": lambda s: s.update(additionalProperties=True),
    "examples": prop("word", examples=["abc"]),
}


@pytest.mark.parametrize("name", BREAKING)
def test_each_planted_break_is_found(name: str) -> None:
    kind, edit = BREAKING[name]
    new = copy.deepcopy(OLD)
    edit(new)
    assert json.dumps(new) != json.dumps(OLD)
    assert kind in [found.kind for found in breaks_between(OLD, new)]


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_edits_pass(name: str) -> None:
    new = copy.deepcopy(OLD)
    HARMLESS[name](new)
    jsonschema.Draft202012Validator.check_schema(new)
    assert breaks_between(OLD, new) == []


def test_a_break_says_where_and_what() -> None:
    new = copy.deepcopy(OLD)
    part(new)["properties"]["id"]["type"] = "integer"
    found = breaks_between(OLD, new)
    assert str(found[0]) == "$.list[].id: type was string, is integer"


def test_breaks_are_found_in_both_directions() -> None:
    """What one release adds, the next one must not take away."""
    new = copy.deepcopy(OLD)
    new["properties"]["extra"] = {"type": "string"}
    assert [found.kind for found in breaks_between(new, OLD)] == ["removed property"]


def test_real_schemas_are_compatible_with_themselves() -> None:
    for event in ("wallet.score.signed.v1", "advisory.answer.delivered.v1"):
        schema = load_schema(event)
        assert breaks_between(schema, copy.deepcopy(schema)) == []
