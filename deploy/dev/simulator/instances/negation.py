"""Schemas that steer a value away from a schema under `not`; the finished value is verified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deploy.dev.simulator.instances.demands import ALL_TYPES

# keyword: (type it speaks of, keyword of the opposite, what is added to the bound)
_OPPOSITES = {
    "minimum": ("number", "exclusiveMaximum", 0),
    "maximum": ("number", "exclusiveMinimum", 0),
    "exclusiveMinimum": ("number", "maximum", 0),
    "exclusiveMaximum": ("number", "minimum", 0),
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
}


def negations(schema: Any) -> list[Any]:
    """Ways to break `schema`, the last of them "anything": one that is broken breaks the whole."""
    if isinstance(schema, bool):
        return [not schema]
    found: list[Any] = []
    for keyword, value in schema.items():
        found += _broken(keyword, value)
    return [*found, True]


def _broken(keyword: str, value: Any) -> list[Any]:
    if keyword in _OPPOSITES:
        kind, opposite, added = _OPPOSITES[keyword]
        return [{"type": kind, opposite: value + added}]
    if keyword == "type":
        named = {value} if isinstance(value, str) else set(value)
        if "number" in named:
            named.add("integer")
        left = sorted(ALL_TYPES - named)
        return [{"type": left}] if left else []
    if keyword == "required":
        return [{"type": "object", "properties": {name: False}} for name in value]
    if keyword == "properties":
        return [
            {"type": "object", "required": [name], "properties": {name: {"not": sub}}}
            for name, sub in value.items()
        ]
    if keyword == "items" and isinstance(value, Mapping):
        return [{"type": "array", "minItems": 1, "prefixItems": [{"not": value}]}]
    if keyword == "not":
        return [value]
    if keyword == "allOf":
        return [{"not": part} for part in value]
    if keyword == "anyOf":
        return [{"allOf": [{"not": part} for part in value]}]
    return []
