"""The grammar derived from a full schema (SPEC S1.2, S3.4; DESIGN §4)."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_gate.schema_refs import SchemaRefError
from assay_gate.wire_merge import WireSchemaError
from assay_gate.wire_patterns import bounded, portable
from assay_gate.wire_schema import MAX_RECURSION, derive_wire_schema

ALLOWED = {
    "type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems",
    "maxItems", "minLength", "maxLength", "minimum", "maximum", "enum", "const", "anyOf",
    "pattern", "format",
}  # fmt: skip


def keywords(wire: Any) -> set[str]:
    """Every keyword used anywhere in a wire schema."""
    if not isinstance(wire, dict):
        return set()
    found = set(wire)
    for name in ("items", "additionalProperties"):
        found |= keywords(wire.get(name))
    for sub in [*wire.get("properties", {}).values(), *wire.get("anyOf", ())]:
        found |= keywords(sub)
    for sub in wire.get("prefixItems", ()):
        found |= keywords(sub)
    return found


def of(schema: dict[str, Any]) -> dict[str, Any]:
    """The wire form of one property's schema."""
    wire = derive_wire_schema({"type": "object", "properties": {"x": schema}})
    sub: dict[str, Any] = wire["properties"]["x"]
    return sub


def test_integer_bounds_stay_and_number_bounds_go() -> None:
    """S1.2: engines enforce integer bounds and silently drop those of number."""
    assert of({"type": "integer", "minimum": 0, "maximum": 100}) == {
        "type": "integer",
        "minimum": 0,
        "maximum": 100,
    }
    assert of({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10.5}) == {
        "type": "integer",
        "minimum": 1,
        "maximum": 10,
    }
    assert of({"type": "number", "minimum": 0, "maximum": 1}) == {"type": "number"}
    assert of({"type": "integer", "minimum": -(10**30), "multipleOf": 5}) == {"type": "integer"}


def test_objects_are_closed_and_keep_their_order() -> None:
    """S1.2: nothing beyond the named properties, in the order the schema names them."""
    schema = {
        "type": "object",
        "properties": {"b": {"type": "string"}, "a": {"type": "integer"}},
        "required": ["a"],
        "minProperties": 1,
        "patternProperties": {"^x": {}},
    }
    assert derive_wire_schema(schema) == {
        "type": "object",
        "properties": {"b": {"type": "string"}, "a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert list(derive_wire_schema(schema)["properties"]) == ["b", "a"]


def test_maps_and_untyped_parts() -> None:
    """S1.2: an open map keeps its value schema, and anything stays anything."""
    assert of({"type": "object", "additionalProperties": {"type": "integer"}}) == {
        "type": "object",
        "additionalProperties": {"type": "integer"},
    }
    assert of({}) == {}
    assert of({"type": "object"}) == {"type": "object"}
    assert of({"properties": {"a": True}})["type"] == "object"
    with pytest.raises(WireSchemaError, match="nothing can match"):
        of({"type": "array", "items": {"anyOf": [False]}, "minItems": 1})


def test_references_are_inlined_with_what_stands_beside_them() -> None:
    """S1.2: llama.cpp drops keywords beside $ref, so they are merged."""
    schema = {
        "$id": "https://example.org/s",
        "$defs": {
            "share": {"type": "integer", "minimum": 0},
            "named": {"$anchor": "here", "enum": ["a", "b"]},
            "odd/na~me": {"type": "boolean"},
        },
        "properties": {
            "a": {"$ref": "#/$defs/share", "maximum": 9, "description": "dropped"},
            "b": {"$ref": "#here"},
            "c": {"$ref": "https://example.org/s#/$defs/odd~1na~0me"},
        },
    }
    assert derive_wire_schema(schema)["properties"] == {
        "a": {"type": "integer", "minimum": 0, "maximum": 9},
        "b": {"enum": ["a", "b"]},
        "c": {"type": "boolean"},
    }


@pytest.mark.parametrize(
    "ref",
    ["https://example.org/other", "other.json", "#/$defs/none", "#nowhere", "#/properties/n/enum"],
)
def test_a_reference_out_of_the_document_is_refused(ref: str) -> None:
    """DESIGN §4: nothing is fetched."""
    schema = {"properties": {"x": {"$ref": ref}, "n": {"enum": ["a"]}}}
    with pytest.raises(SchemaRefError, match=r"\$ref"):
        derive_wire_schema(schema)


TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name", "children"],
        }
    },
}


def test_recursion_is_followed_a_few_times_and_cut_where_it_may_be() -> None:
    """S1.2: a recursive schema gives a finite grammar whose sentences fit the full schema."""
    wire = derive_wire_schema(TREE)
    depth = 0
    node = wire
    while node.get("properties", {}).get("children", {}).get("maxItems") != 0:
        node = node["properties"]["children"]["items"]
        depth += 1
    assert depth == MAX_RECURSION - 1
    leaf: dict[str, Any] = {"name": "l", "children": []}
    sample = {"name": "r", "children": [{"name": "m", "children": [leaf]}]}
    jsonschema.validate(sample, wire)
    jsonschema.validate(sample, TREE)


def test_recursion_through_optional_parts_and_alternatives_is_left_out() -> None:
    """S1.2: an optional property is dropped, an alternative skipped."""
    linked = {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}},
        "required": ["v"],
    }
    assert '"next"' in json.dumps(derive_wire_schema(linked))
    expression = {
        "$defs": {
            "e": {
                "anyOf": [
                    {"type": "integer"},
                    {"type": "object", "properties": {"l": {"$ref": "#/$defs/e"}},
                     "required": ["l"]},
                ]
            }
        },
        "$ref": "#/$defs/e",
    }  # fmt: skip
    wire = derive_wire_schema(expression)
    jsonschema.validate({"l": {"l": 1}}, wire)
    assert wire["anyOf"][0] == {"type": "integer"}


def test_endless_recursion_is_refused_with_the_reference() -> None:
    """S1.2: a schema no finite value can match is named, not followed."""
    endless = {"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}
    with pytest.raises(WireSchemaError, match="contains itself"):
        derive_wire_schema(endless)
    with pytest.raises(WireSchemaError, match="contains itself"):
        derive_wire_schema({"$ref": "#"})


def test_a_schema_that_explodes_is_refused_in_time() -> None:
    """X.5: work on a schema is bounded."""
    started = time.monotonic()
    bushy = {
        "type": "object",
        "properties": {f"p{n}": {"$ref": "#"} for n in range(40)} | {"v": {"type": "integer"}},
    }
    wire = derive_wire_schema(bushy)  # 40^3 parts would be too many, so recursion ends early
    assert wire["properties"].keys() == bushy["properties"].keys()
    assert wire["properties"]["p0"]["properties"].keys() == {"v"}
    combined = {"allOf": [{"anyOf": [{"minLength": n} for n in range(9)]} for _ in range(3)]}
    with pytest.raises(WireSchemaError, match="alternatives"):
        derive_wire_schema(combined)
    doubling = {"$defs": {f"d{n}": {"properties": {
        "a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}}}
        for n in range(40)} | {"d40": {}}, "$ref": "#/$defs/d0"}  # fmt: skip
    with pytest.raises(WireSchemaError, match="more than 4000 parts"):
        derive_wire_schema(doubling)
    assert time.monotonic() - started < 20


def test_alternatives() -> None:
    """S1.2: oneOf becomes anyOf, type lists too, and parents are merged into every branch."""
    assert of({"type": ["integer", "null"], "minimum": 0}) == {
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]
    }
    assert of({"oneOf": [{"const": 1}, {"type": "string", "maxLength": 3}]}) == {
        "anyOf": [{"const": 1}, {"type": "string", "maxLength": 3}]
    }
    merged = derive_wire_schema(
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        }
    )
    assert [branch["required"] for branch in merged["anyOf"]] == [["a"], ["b"]]
    assert all(branch["properties"].keys() == {"a", "b"} for branch in merged["anyOf"])


def test_all_of_is_merged() -> None:
    """S1.2: bounds tighten, types meet, properties join."""
    assert of({"allOf": [{"type": "number", "minimum": 1}, {"type": "integer", "minimum": 3}]}) == {
        "type": "integer",
        "minimum": 3,
    }
    wire = derive_wire_schema(
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"enum": [1, 2, 3]}}, "required": ["a"]},
                {"properties": {"a": {"enum": [2, 3, 4]}, "b": {"type": "null"}}},
            ]
        }
    )
    assert wire["properties"] == {"a": {"enum": [2, 3]}, "b": {"type": "null"}}
    with pytest.raises(WireSchemaError):
        of(
            {
                "type": "array",
                "minItems": 1,
                "items": {"allOf": [{"type": "string"}, {"type": "null"}]},
            }
        )


def test_arrays() -> None:
    """S1.2: counts stay, uniqueness and contains go, tuples stay."""
    assert of(
        {"type": "array", "items": {"type": "string"}, "maxItems": 5, "uniqueItems": True,
         "contains": {"const": "x"}}
    ) == {"type": "array", "items": {"type": "string"}, "maxItems": 5}  # fmt: skip
    assert of({"type": "array", "prefixItems": [{"type": "null"}], "items": False}) == {
        "type": "array",
        "prefixItems": [{"type": "null"}],
        "items": False,
    }
    assert of({"type": "array", "maxItems": 5000}) == {"type": "array"}


def test_strings() -> None:
    """S1.2: lengths stay, but never beside a pattern, where llama.cpp drops them silently."""
    assert of({"type": "string", "minLength": 10, "maxLength": 500}) == {
        "type": "string",
        "minLength": 10,
        "maxLength": 500,
    }
    assert of({"type": "string", "maxLength": 100_000}) == {"type": "string"}
    hexadecimal = {"type": "string", "pattern": "^0x[0-9a-f]{40}$", "maxLength": 42}
    assert of(hexadecimal) == {"type": "string", "pattern": "^0x[0-9a-f]{40}$"}
    assert of({"type": "string", "pattern": "^[a-z]+$", "maxLength": 9}) == {
        "type": "string",
        "maxLength": 9,
    }
    assert of({"type": "string", "pattern": "^(?!x).*$"}) == {"type": "string"}
    assert of({"type": "string", "format": "date-time"}) == {
        "type": "string",
        "format": "date-time",
    }
    assert of({"type": "string", "format": "uri"}) == {"type": "string"}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"^\d{4}-\d\d$", "^[0-9]{4}-[0-9][0-9]$"),
        (r"^[\d.]+$", "^[0-9.]+$"),
        (r"^\w\s$", r"^[A-Za-z0-9_][ \t\n\r]$"),
        (r"^a\.b\$$", r"^a\.b\$$"),
        (r"^[$^]$", "^[$^]$"),
        ("[0-9]+", None),
        (r"^\\d$", r"^\\d$"),
        (r"^a\$", None),
        (r"^(?:a|b)$", None),
        (r"^\bword$", None),
        (r"^\p{L}$", None),
        (r"^(a)\1$", None),
        ("^a$|^b$", None),
        ("^[a$", None),
    ],
)
def test_patterns_in_the_portable_dialect(pattern: str, expected: str | None) -> None:
    r"""S1.2: no (?…) and no \d reach an engine."""
    assert portable(pattern) == expected


def test_bounded_patterns() -> None:
    """S1.2: only a pattern that limits itself may replace maxLength."""
    assert bounded("^[a+*]{1,9}x?$")
    assert bounded(r"^\+[0-9]{3}$")
    assert not bounded("^a+$")
    assert not bounded("^a{2,}$")


def test_dropped_keywords_never_travel() -> None:
    """S1.2: nothing that an engine refuses, crashes on or ignores is sent."""
    wire = derive_wire_schema(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "T",
            "type": "object",
            "if": {"properties": {"a": {"const": 1}}},
            "then": {"required": ["b"]},
            "not": {"required": ["c"]},
            "dependentRequired": {"a": ["b"]},
            "propertyNames": {"pattern": "^a"},
            "unevaluatedProperties": False,
            "properties": {
                "a": {"type": "integer", "default": 1, "examples": [1], "multipleOf": 3},
                "b": {"type": "string", "contentEncoding": "base64", "pattern": r"\d"},
                "c": {"type": "array", "minContains": 1, "contains": {}, "items": {"title": "x"}},
            },
        }
    )
    assert keywords(wire) <= ALLOWED
    assert "pattern" not in wire["properties"]["b"]


def test_pins() -> None:
    """S3.4: an assigned value is the only one the grammar allows."""
    schema = {
        "type": "object",
        "properties": {
            "inner": {"anyOf": [{"$ref": "#/$defs/i"}, {"type": "null"}]},
            "n": {"type": "integer"},
        },
        "$defs": {"i": {"type": "object", "properties": {"v": {"type": "integer"}}}},
    }
    wire = derive_wire_schema(schema, [("$.inner.v", 50), ("$.n", 1)])
    assert wire["properties"]["n"] == {"const": 1}
    assert wire["properties"]["inner"]["anyOf"][0]["properties"]["v"] == {"const": 50}
    for path in ("$.inner.w", "$.none.v", "$.n.v"):
        with pytest.raises(WireSchemaError, match="no such property"):
            derive_wire_schema(schema, [(path, 1)])
    with pytest.raises(WireSchemaError, match="only object members"):
        derive_wire_schema(schema, [("$.list[0]", 1)])


scalars = st.sampled_from(
    [
        {"type": "integer", "minimum": 0, "maximum": 9},
        {"type": "string", "maxLength": 4},
        {"type": "boolean"},
        {"enum": ["a", 1, None]},
        {"$ref": "#/$defs/d"},
        {"type": ["null", "number"]},
    ]
)
schemas = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.lists(inner, min_size=1, max_size=3).map(lambda b: {"anyOf": b}),
        st.lists(inner, min_size=1, max_size=2).map(lambda b: {"oneOf": b}),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda p: {"type": "object", "properties": p, "required": sorted(p)}
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(schemas)
def test_a_wire_schema_is_a_schema_in_the_small_dialect(schema: dict[str, Any]) -> None:
    """S1.2: whatever comes in, what goes out is valid, reference-free and closed."""
    wire = derive_wire_schema({**schema, "$defs": {"d": {"type": "integer", "minimum": 1}}})
    jsonschema.Draft202012Validator.check_schema(wire)
    assert keywords(wire) <= ALLOWED
    assert "$ref" not in json.dumps(wire)
