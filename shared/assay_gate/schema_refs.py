"""Local `$ref` resolution in a JSON Schema (Draft 2020-12); nothing is ever fetched."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from assay_gate.verdict import GateError

# Keywords whose value is data; a "$ref" inside them is no reference.
_DATA = frozenset(("const", "enum", "default", "examples"))


class SchemaRefError(GateError):
    """A `$ref` that leads nowhere or out of the document."""


def resolve(root: Mapping[str, Any], ref: str) -> Any:
    """The sub-schema that `ref` names within `root`.

    Understands `#`, JSON pointers (`#/$defs/x`), `$anchor` names and the document's own `$id` in
    front of either. Raises SchemaRefError for everything else: a process brings its schema whole.
    """
    base, _, fragment = ref.partition("#")
    if base and base != str(root.get("$id", "")).partition("#")[0]:
        raise SchemaRefError(f"$ref {ref!r} leads out of the schema; bring it in under $defs")
    fragment = unquote(fragment)
    if not fragment:
        return root
    if not fragment.startswith("/"):
        for anchored in subschemas(root):
            if fragment in (anchored.get("$anchor"), anchored.get("$dynamicAnchor")):
                return anchored
        raise SchemaRefError(f"$ref {ref!r}: no such $anchor")
    node: Any = root
    for token in fragment[1:].split("/"):
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and token in node:
            node = node[token]
        elif isinstance(node, list) and token.isdecimal() and int(token) < len(node):
            node = node[int(token)]
        else:
            raise SchemaRefError(f"$ref {ref!r}: there is no {token!r}")
    if not isinstance(node, Mapping | bool):
        raise SchemaRefError(f"$ref {ref!r} names no schema")
    return node


def subschemas(root: Any) -> Iterator[Mapping[str, Any]]:
    """Every object of the document in which keywords can stand, the root first."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            yield node
            pending += [value for key, value in node.items() if key not in _DATA]
        elif isinstance(node, list):
            pending += node


def check_refs(root: Mapping[str, Any]) -> None:
    """Raises SchemaRefError for the first reference that does not resolve within the document."""
    for node in subschemas(root):
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(node.get(keyword), str):
                resolve(root, node[keyword])


def with_const(root: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of the schema in which the property `$.a.b` can only be `value`.

    Follows `properties` and `$ref`; raises SchemaRefError where the path leads through anything
    else.
    """
    copied = copy.deepcopy(dict(root))
    node = copied
    *parents, name = path.removeprefix("$.").split(".")
    for parent in parents:
        members = node.get("properties", {})
        child = members.get(parent)
        seen: set[str] = set()
        while isinstance(child, Mapping) and "$ref" in child and child["$ref"] not in seen:
            seen.add(child["$ref"])
            child = copy.deepcopy(resolve(root, child["$ref"]))
        if not isinstance(child, dict):
            raise SchemaRefError(f"{path}: the schema has no object {parent!r}")
        members[parent] = node = child
    if name not in node.get("properties", {}):
        raise SchemaRefError(f"{path}: the schema has no property {name!r}")
    node["properties"][name] = {"const": value}
    return copied
