"""What one reading of a schema demands of a value: all its keywords in one place, mergeable."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deploy.dev.simulator.instances.failures import Unsatisfiable
from deploy.dev.simulator.instances.patterns import portable

ALL_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
# Only these are met by construction; where any other stands, the finished value is verified.
_EASY = frozenset(
    (*LOWER, *UPPER, "type", "properties", "required", "additionalProperties", "items",
     "prefixItems", "$ref", "allOf", "anyOf", "$defs", "definitions", "title", "description",
     "$schema", "$id", "$comment", "default", "examples", "version")
)  # fmt: skip


@dataclass(slots=True)
class Demands:
    """`types` None: any; `values` None: any. `checked`: verify what was built."""

    types: frozenset[str] | None = None
    values: list[Any] | None = None
    limits: dict[str, Any] = field(default_factory=dict)
    multiples: list[Any] = field(default_factory=list)
    patterns: list[str] = field(default_factory=list)
    formats: list[str] = field(default_factory=list)
    required: dict[str, None] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    pattern_properties: dict[str, Any] = field(default_factory=dict)
    additional: Any = True
    unevaluated_properties: Any = True
    names: Any = True
    prefix: list[Any] = field(default_factory=list)
    items: Any = True
    unevaluated_items: Any = True
    contains: list[tuple[Any, int]] = field(default_factory=list)
    unique: bool = False
    checked: bool = False

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> Demands:
        """The plain keywords of a schema; what combines schemas is not looked at."""
        kind = schema.get("type")
        items = schema.get("items", True)
        listed = isinstance(items, list)
        values = list(schema["enum"]) if "enum" in schema else None
        if "const" in schema:
            values = _shared(values, [schema["const"]])
        contains = []
        if "contains" in schema:
            contains.append((schema["contains"], int(schema.get("minContains", 1))))
        return cls(
            types=None if kind is None else frozenset([kind] if isinstance(kind, str) else kind),
            values=values,
            limits={key: schema[key] for key in (*LOWER, *UPPER) if key in schema},
            multiples=[schema["multipleOf"]] if "multipleOf" in schema else [],
            patterns=[schema["pattern"]] if "pattern" in schema else [],
            formats=[schema["format"]] if "format" in schema else [],
            required=dict.fromkeys(schema.get("required", ())),
            properties=dict(schema.get("properties", {})),
            pattern_properties=dict(schema.get("patternProperties", {})),
            additional=schema.get("additionalProperties", True),
            unevaluated_properties=schema.get("unevaluatedProperties", True),
            names=schema.get("propertyNames", True),
            prefix=list(items) if listed else list(schema.get("prefixItems", ())),
            items=schema.get("additionalItems", True) if listed else items,
            unevaluated_items=schema.get("unevaluatedItems", True),
            contains=contains,
            unique=schema.get("uniqueItems") is True,
            checked=not _EASY.issuperset(schema),
        )

    def and_(self, other: Demands) -> Demands:
        """What both demand; Unsatisfiable where they plainly exclude each other."""
        limits = dict(self.limits)
        for key, value in other.limits.items():
            choose = max if key in LOWER else min
            limits[key] = choose(limits[key], value) if key in limits else value
        longest = range(max(len(self.prefix), len(other.prefix)))
        merged = replace(
            self,
            types=_shared_types(self.types, other.types),
            values=_shared(self.values, other.values),
            limits=limits,
            multiples=self.multiples + other.multiples,
            patterns=self.patterns + [p for p in other.patterns if p not in self.patterns],
            formats=self.formats + [f for f in other.formats if f not in self.formats],
            required=self.required | other.required,
            properties={
                name: both(self.of_property(name), other.of_property(name))
                for name in self.properties | other.properties
            },
            pattern_properties={
                pattern: both(
                    self.pattern_properties.get(pattern, self.additional),
                    other.pattern_properties.get(pattern, other.additional),
                )
                for pattern in self.pattern_properties | other.pattern_properties
            },
            additional=both(self.additional, other.additional),
            unevaluated_properties=both(self.unevaluated_properties, other.unevaluated_properties),
            names=both(self.names, other.names),
            prefix=[both(self.of_item(n), other.of_item(n)) for n in longest],
            items=both(self.items, other.items),
            unevaluated_items=both(self.unevaluated_items, other.unevaluated_items),
            contains=self.contains + other.contains,
            unique=self.unique or other.unique,
            checked=self.checked or other.checked,
        )
        for name in merged.required:
            if merged.properties.get(name) is False:
                raise Unsatisfiable("required", f".{name}")
        return merged

    def of_property(self, name: str) -> Any:
        """The schema for a member of this name, declared or not."""
        found = self.properties.get(name, True)
        matching = [
            sub for pattern, sub in self.pattern_properties.items() if _matches(pattern, name)
        ]
        for sub in matching:
            found = both(found, sub)
        return found if matching or name in self.properties else self.additional

    def of_item(self, index: int) -> Any:
        """The schema for the item at this index."""
        return self.prefix[index] if index < len(self.prefix) else self.items


def both(left: Any, right: Any) -> Any:
    """A schema for values that fit two schemas."""
    if left is False or right is False:
        return False
    if left is True or left == right:
        return right
    return left if right is True else {"allOf": [left, right]}


def canonical(value: Any) -> str:
    """Equal for values JSON Schema calls equal: 1 and 1.0, but not 1 and true."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _shared(left: list[Any] | None, right: list[Any] | None) -> list[Any] | None:
    if left is None or right is None:
        return right if left is None else left
    known = {canonical(value) for value in right}
    if found := [value for value in left if canonical(value) in known]:
        return found
    raise Unsatisfiable("enum")


def _shared_types(
    left: frozenset[str] | None, right: frozenset[str] | None
) -> frozenset[str] | None:
    if left is None or right is None:
        return right if left is None else left
    found = left & right
    if ("number" in left and "integer" in right) or ("integer" in left and "number" in right):
        found |= {"integer"}
    if not found:
        raise Unsatisfiable("type")
    return found


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(portable(pattern), name) is not None
    except re.error:
        return False
