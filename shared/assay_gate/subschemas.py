"""Which subschemas speak about the members of an object and the items of an array."""

from __future__ import annotations

from typing import Any

from assay_gate.schema import Located, Schema, below

APPLICATORS = frozenset(("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if"))
"""Keywords that judge the same value by another subschema."""


def member_schemas(name: str, pointer: str, node: dict[str, Any], schema: Schema) -> list[Located]:
    """Every subschema that says something about the member `name`."""
    places: list[Located] = []
    properties = node.get("properties") or {}
    if name in properties:
        places.append((below(pointer, "properties", name), properties[name]))
    for pattern, part in (node.get("patternProperties") or {}).items():
        if schema.matches(pattern, name):
            places.append((below(pointer, "patternProperties", pattern), part))
    keyword = "additionalProperties"
    if keyword not in node and not APPLICATORS & node.keys():
        keyword = "unevaluatedProperties"
    if not places and keyword in node:
        places.append((below(pointer, keyword), node[keyword]))
    return places


def item_schemas(pointer: str, node: dict[str, Any]) -> tuple[list[Located], Located]:
    """The subschemas of the first items and the one of the rest; `items` as a list is the
    spelling of older drafts."""
    prefix, rest = node.get("prefixItems") or [], node.get("items", True)
    prefix_key, rest_key = "prefixItems", "items"
    if isinstance(rest, list):
        prefix, rest = rest, node.get("additionalItems", True)
        prefix_key, rest_key = "items", "additionalItems"
    places = [(below(pointer, prefix_key, index), part) for index, part in enumerate(prefix)]
    return places, (below(pointer, rest_key), rest)
