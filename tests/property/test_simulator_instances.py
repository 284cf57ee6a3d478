"""Any schema that can be met is met: schemas made such that they have instances."""

from __future__ import annotations

from typing import Any

import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.dev.simulator.instances import SchemaAnswers

NAMES = st.sampled_from(["a", "b", "score", "naïve key", "$ref", "x-1"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=4), st.just(0.5)
)


@st.composite
def integers(draw: st.DrawFn) -> dict[str, Any]:
    low = draw(st.integers(-1000, 1000))
    step = draw(st.integers(1, 7))
    schema = {"type": "integer", "minimum": low, "maximum": low + draw(st.integers(step, 50))}
    return schema | ({"multipleOf": step} if draw(st.booleans()) else {})


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    low = draw(st.floats(-1e6, 1e6))
    return {"type": "number", "exclusiveMinimum": low, "maximum": low + draw(st.floats(0.1, 10))}


@st.composite
def strings(draw: st.DrawFn) -> dict[str, Any]:
    least = draw(st.integers(0, 30))
    schema: dict[str, Any] = {"type": "string", "minLength": least}
    if draw(st.booleans()):
        schema["maxLength"] = least + draw(st.integers(0, 30))
    if draw(st.booleans()):
        pattern = st.sampled_from(["^[a-z]*$", "^(ab?|[^x-z])+$", "[0-9A-F]{0,2}", "^\\w.*", "^"])
        schema["pattern"] = draw(pattern)
        schema["minLength"] = max(1, least)
        schema["maxLength"] = max(1, schema.get("maxLength", 60))
    return schema


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    @st.composite
    def arrays(draw: st.DrawFn) -> dict[str, Any]:
        least = draw(st.integers(0, 3))
        prefix = draw(st.lists(inner, max_size=2))
        schema = {"type": "array", "items": draw(inner), "minItems": least}
        schema |= {"maxItems": least + draw(st.integers(0, 3))} if draw(st.booleans()) else {}
        return schema | ({"prefixItems": prefix} if prefix else {})

    @st.composite
    def objects(draw: st.DrawFn) -> dict[str, Any]:
        properties = draw(st.dictionaries(NAMES, inner, max_size=4))
        required = [name for name in properties if draw(st.booleans())]
        schema = {"type": "object", "properties": properties, "required": required}
        rest = draw(st.sampled_from(["open", "closed", "typed", "patterned"]))
        if rest == "closed":
            schema["additionalProperties"] = False
        elif rest == "typed":
            schema |= {"additionalProperties": draw(inner), "minProperties": len(properties) + 2}
        elif rest == "patterned":
            schema |= {"patternProperties": {"^p[0-9]{3}$": draw(inner)}}
            schema |= {"additionalProperties": False, "minProperties": len(properties) + 1}
        return schema

    @st.composite
    def combined(draw: st.DrawFn) -> dict[str, Any]:
        one, two = draw(inner), draw(inner)
        return draw(
            st.sampled_from(
                [
                    {"anyOf": [one, two]},
                    {"anyOf": [False, one]},
                    {"allOf": [one, True, one]},
                    {"oneOf": [{"type": "object", "required": ["t"], "properties": {
                        "t": {"const": n}, "v": sub}} for n, sub in enumerate((one, two))]},
                    {"if": {"type": "null"}, "then": True, "else": one},
                    {"type": "object", "required": ["v"], "properties": {"v": True},
                     "allOf": [{"properties": {"v": one}}, {"required": ["w"]}]},
                    {"type": "array", "contains": one, "maxItems": 3},
                    {"type": "object", "dependentSchemas": {"d": {
                        "required": ["e"], "properties": {"e": two}}}, "required": ["d"]},
                    {"not": {"type": "object", "properties": {"v": one}}},
                ]
            )
        )  # fmt: skip

    return st.one_of(arrays(), objects(), combined())


LEAVES: st.SearchStrategy[Any] = st.one_of(
    integers(), numbers(), strings(), st.just(True), st.just({}),
    st.builds(lambda value: {"const": value}, SCALARS),
    st.builds(lambda values: {"enum": values}, st.lists(SCALARS, min_size=1, max_size=4)),
    st.just({"type": ["null", "boolean"]}), st.just({"$ref": "#/$defs/node"}),
)  # fmt: skip
SCHEMAS = st.recursive(LEAVES, containers, max_leaves=8)
NODE = {
    "type": "object",
    "required": ["next"],
    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, seed=st.text(max_size=3))
def test_every_instance_validates(schema: Any, seed: str) -> None:
    """Issue, item 5: a deterministic fitting instance for any JSON Schema."""
    document = {"$defs": {"node": NODE}, "allOf": [schema]}
    value = SchemaAnswers(document).instance(seed)
    jsonschema.Draft202012Validator(document).validate(value)
    assert SchemaAnswers(document).instance(seed) == value
