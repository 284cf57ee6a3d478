"""Flattening a schema: `$ref`, `allOf`, `anyOf` and `oneOf` at its top become plain variants.

Where two schemas cannot be merged exactly, the looser reading is kept: the wire schema only
guides the model, and the full schema judges the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_gate.schema_refs import resolve
from assay_gate.verdict import GateError

MAX_VARIANTS = 64

Node = dict[str, Any]
Trail = tuple[str, ...]
Variant = tuple[Node, Trail]

_LOWER = frozenset(("minimum", "exclusiveMinimum", "minLength", "minItems"))
_UPPER = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems"))


class WireSchemaError(GateError):
    """No wire schema can be derived; the message names the place and the keyword."""


class Endless(Exception):
    """A reference that contains itself has been followed often enough."""

    def __init__(self, ref: str) -> None:
        super().__init__(ref)
        self.ref = ref


def variants(schema: Any, root: Mapping[str, Any], trail: Trail, recursion: int) -> list[Variant]:
    """The schema as alternatives without references or combinators at their top level.

    `trail` holds the references followed so far; each is followed `recursion` times at most.
    Raises Endless when no alternative is finite. An empty list: nothing can match (`false`).
    """
    if isinstance(schema, bool):
        return [({}, trail)] if schema else []
    rest = {k: v for k, v in schema.items() if k not in ("$ref", "allOf", "anyOf", "oneOf")}
    found: list[Variant] = [(rest, trail)]
    if isinstance(ref := schema.get("$ref"), str):
        if trail.count(ref) >= recursion:
            raise Endless(ref)
        found = _product(found, variants(resolve(root, ref), root, (*trail, ref), recursion))
    for part in schema.get("allOf", ()):
        found = _product(found, variants(part, root, trail, recursion))
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            found = _product(found, _branches(schema[keyword], root, trail, recursion))
    return found


def _branches(
    parts: list[Any], root: Mapping[str, Any], trail: Trail, recursion: int
) -> list[Variant]:
    """All finite branches; one that recurs too deep is left out while another remains."""
    found: list[Variant] = []
    endless: Endless | None = None
    for part in parts:
        try:
            found += variants(part, root, trail, recursion)
        except Endless as reason:
            endless = reason
    if not found and endless is not None:
        raise endless
    return found


def _product(left: list[Variant], right: list[Variant]) -> list[Variant]:
    if len(left) * len(right) > MAX_VARIANTS:
        raise WireSchemaError(f"anyOf/oneOf/allOf combine to more than {MAX_VARIANTS} alternatives")
    return [
        (merge(a, b), a_trail + b_trail[_shared(a_trail, b_trail) :])
        for a, a_trail in left
        for b, b_trail in right
        if not _disjoint(a, b)
    ]


def _shared(a: Trail, b: Trail) -> int:
    count = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        count += 1
    return count


def _disjoint(a: Node, b: Node) -> bool:
    """Whether two schemas exclude each other by their types."""
    left, right = types_of(a), types_of(b)
    return left is not None and right is not None and not _both(left, right)


def _both(left: set[str], right: set[str]) -> set[str]:
    both = left & right
    if ("integer" in left and "number" in right) or ("number" in left and "integer" in right):
        both.add("integer")  # every integer is a number
    return both


def types_of(node: Node) -> set[str] | None:
    declared = node.get("type")
    if declared is None:
        return None
    return {declared} if isinstance(declared, str) else set(declared)


def merge(a: Node, b: Node) -> Node:
    """Both schemas at once, as `allOf` means it, without their combinators."""
    merged = dict(a)
    for key, value in b.items():
        if key not in merged:
            merged[key] = value
        elif key == "type":
            both = _both(types_of(a) or set(), types_of(b) or set())
            merged[key] = sorted(both) if len(both) > 1 else next(iter(both))
        elif key == "properties":
            merged[key] = {
                **merged[key],
                **{k: _all_of(merged[key].get(k), v) for k, v in value.items()},
            }
        elif key == "required":
            merged[key] = list(dict.fromkeys([*merged[key], *value]))
        elif key == "enum":
            merged[key] = [item for item in merged[key] if item in value]
        elif key in _LOWER:
            merged[key] = max(merged[key], value)
        elif key in _UPPER:
            merged[key] = min(merged[key], value)
        elif key in ("items", "additionalProperties"):
            merged[key] = _all_of(merged[key], value)
    return merged


def _all_of(a: Any, b: Any) -> Any:
    if a is None or a is True or a == b:
        return b
    if b is True:
        return a
    if a is False or b is False:
        return False
    return {"allOf": [a, b]}
