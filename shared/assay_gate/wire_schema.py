"""The reduced schema that goes to the model as a grammar (DESIGN §4, SPEC S1.2).

Engines differ in what they enforce, drop, refuse or crash on, so only what all of them read alike
is sent; the full schema judges the answer (S1.3). What happens to each keyword:

kept        type, enum, const, required, items, prefixItems, minItems, maxItems, minLength,
            maxLength, integer bounds, format date-time, anchored portable patterns
rewritten   $ref is inlined; allOf is merged; oneOf becomes anyOf; a list of types becomes anyOf;
            exclusive integer bounds become inclusive; objects with properties are closed
dropped     bounds of `number` (llama.cpp drops them silently, so nobody may rely on them),
            lengths and counts above MAX_REPETITION, lengths beside a pattern, multipleOf,
            uniqueItems, contains, if/then/else, not, dependent*, *Properties counts, propertyNames,
            patternProperties, other formats, titles, descriptions, defaults
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from assay_gate.wire_leaves import fitting, integer, repetitions, string
from assay_gate.wire_merge import Endless, Node, Trail, WireSchemaError, types_of, variants

MAX_NODES = 4000
MAX_RECURSION = 3
_BY_TYPE = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
}


def derive_wire_schema(
    schema: Mapping[str, Any], pins: Iterable[tuple[str, Any]] = ()
) -> dict[str, Any]:
    """The wire schema of a full JSON Schema; `pins` are (`$.a.b`, value) set with const (S3.4).

    Recursive references are followed three times, fewer where that grows too large, and then cut
    where the schema allows it (an optional property is left out, an array stays empty, an
    alternative is dropped). Raises
    WireSchemaError where it does not, for a path that does not exist, and for a schema that
    grows beyond all bounds; SchemaRefError for a reference out of the document.
    """
    try:
        wire = _unfolded(schema)
    except Endless as reason:
        raise WireSchemaError(f"$ref {reason.ref!r} contains itself in every instance") from None
    for path, value in pins:
        if not pin(wire, path, value):
            raise WireSchemaError(f"{path}: the schema has no such property to pin")
    return wire


def _unfolded(schema: Mapping[str, Any]) -> Node:
    for recursion in range(MAX_RECURSION, 0, -1):
        try:
            return _Derivation(schema, recursion).node(schema, (), "$")
        except _TooLarge:
            continue
    raise WireSchemaError(f"the schema unfolds to more than {MAX_NODES} parts")


def pin(wire: Node, path: str, value: Any) -> bool:
    """Fixes one property, named `$.a.b`, with const; whether the path exists."""
    if not path.startswith("$.") or "[" in path:
        raise WireSchemaError(f"{path}: only object members can be pinned, as in $.a.b")
    *parents, name = path[2:].split(".")
    nodes = _alternatives(wire)
    for parent in parents:
        children = [node["properties"][parent] for node in nodes if parent in _members(node)]
        nodes = [alternative for child in children for alternative in _alternatives(child)]
    owners = [node for node in nodes if name in _members(node)]
    for owner in owners:
        owner["properties"][name] = {"const": value}
    return bool(owners)


def _alternatives(wire: Node) -> list[Node]:
    return list(wire["anyOf"]) if "anyOf" in wire else [wire]


def _members(wire: Node) -> Mapping[str, Any]:
    members: Mapping[str, Any] = wire.get("properties", {})
    return members


class _TooLarge(Exception):
    """The wire schema has grown beyond MAX_NODES parts."""


class _Derivation:
    """One derivation: the document, how far recursion is followed, and the work done so far."""

    def __init__(self, root: Mapping[str, Any], recursion: int) -> None:
        self._root = root
        self._recursion = recursion
        self._nodes = 0

    def node(self, schema: Any, trail: Trail, path: str) -> Node:
        """The wire form of a sub-schema; raises Endless if every form of it recurs."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _TooLarge
        found: list[Node] = []
        endless: Endless | None = None
        for flat, followed in variants(schema, self._root, trail, self._recursion):
            for name in sorted(types_of(flat) or {_implied(flat)}):
                try:
                    wire = self._typed(flat, name, followed, path)
                except Endless as reason:
                    endless = reason
                    continue
                if wire not in found:
                    found.append(wire)
        if found:
            return found[0] if len(found) == 1 else {"anyOf": found}
        if endless is not None:
            raise endless
        raise WireSchemaError(f"{path}: nothing can match this part of the schema")

    def _typed(self, flat: Node, name: str, trail: Trail, path: str) -> Node:
        wire: Node = {"type": name} if name else {}
        if "const" in flat:
            return {"const": flat["const"]}
        if "enum" in flat:
            return {**wire, "enum": fitting(flat["enum"], name, path)}
        if name == "object":
            wire |= self._object(flat, trail, path)
        elif name == "array":
            wire |= self._array(flat, trail, path)
        elif name == "integer":
            wire |= integer(flat)
        elif name == "string":
            wire |= string(flat)
        return wire

    def _object(self, flat: Node, trail: Trail, path: str) -> Node:
        extra = flat.get("additionalProperties", True)
        required = [key for key in flat.get("required", ()) if isinstance(key, str)]
        members: Node = {}
        for key, sub in flat.get("properties", {}).items():
            if sub is False:
                continue
            try:
                members[key] = self.node(sub, trail, f"{path}.{key}")
            except Endless:
                if key in required:
                    raise
        for key in required:
            if key not in members:
                if extra is False:
                    raise WireSchemaError(f"{path}: {key!r} is required and not allowed")
                members[key] = {} if extra is True else self.node(extra, trail, f"{path}.{key}")
        if members:
            return {"properties": members, "required": required, "additionalProperties": False}
        if isinstance(extra, Mapping) and extra:
            try:
                return {"additionalProperties": self.node(extra, trail, f"{path}.*")}
            except Endless:
                return {"additionalProperties": False}
        return {"additionalProperties": False} if extra is False else {}

    def _array(self, flat: Node, trail: Trail, path: str) -> Node:
        wire: Node = {}
        least = flat.get("minItems", 0)
        if "prefixItems" in flat:
            prefix = flat["prefixItems"]
            wire["prefixItems"] = [
                self.node(sub, trail, f"{path}[{n}]") for n, sub in enumerate(prefix)
            ]
        items = flat.get("items", True)
        if items is False:
            wire["items"] = False
        elif items is not True:
            try:
                wire["items"] = self.node(items, trail, f"{path}[]")
            except Endless:
                if least:
                    raise
                return {"items": {}, "maxItems": 0}
        return wire | repetitions(flat, "minItems", "maxItems")


def _implied(flat: Node) -> str:
    """The type a schema without one speaks of; "" if it could be anything."""
    if "enum" in flat or "const" in flat:
        return ""
    for name, keywords in _BY_TYPE.items():
        if any(keyword in flat for keyword in keywords):
            return name
    return "string" if {"pattern", "minLength", "maxLength"} & flat.keys() else ""
