"""Wire forms of scalars: enum values, integer bounds, string patterns and lengths."""

from __future__ import annotations

import math
from typing import Any

from assay_gate.wire_merge import Node, WireSchemaError
from assay_gate.wire_patterns import bounded, portable

MAX_REPETITION = 2000
"""llama.cpp refuses a grammar whose repetitions exceed this."""

_INT64 = 1 << 63


def fitting(values: list[Any], name: str, path: str) -> list[Any]:
    """The enum values of a type; WireSchemaError if there are none."""
    chosen = [value for value in values if not name or _is(value, name)]
    if not chosen:
        raise WireSchemaError(f"{path}: no value of enum is of type {name or 'any'}")
    return chosen


def _is(value: Any, name: str) -> bool:
    if name in ("integer", "number"):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and (name == "number" or float(value).is_integer())
    kinds = {"string": str, "boolean": bool, "object": dict, "array": list, "null": type(None)}
    return isinstance(value, kinds[name]) if name in kinds else True


def integer(flat: Node) -> Node:
    """Inclusive bounds; those beyond 64 bits are left out."""
    low = [math.ceil(flat["minimum"])] if "minimum" in flat else []
    high = [math.floor(flat["maximum"])] if "maximum" in flat else []
    if "exclusiveMinimum" in flat:
        low.append(math.floor(flat["exclusiveMinimum"]) + 1)
    if "exclusiveMaximum" in flat:
        high.append(math.ceil(flat["exclusiveMaximum"]) - 1)
    wire = {}
    if low and -_INT64 <= max(low) < _INT64:
        wire["minimum"] = max(low)
    if high and -_INT64 <= min(high) < _INT64:
        wire["maximum"] = min(high)
    return wire


def string(flat: Node) -> Node:
    """A date-time, a portable pattern or lengths: never a pattern and lengths together."""
    if flat.get("format") == "date-time":
        return {"format": "date-time"}
    pattern = portable(flat["pattern"]) if isinstance(flat.get("pattern"), str) else None
    if pattern is not None and ("maxLength" not in flat or bounded(pattern)):
        return {"pattern": pattern}
    return repetitions(flat, "minLength", "maxLength")


def repetitions(flat: Node, least: str, most: str) -> Node:
    """The two counting keywords, as far as the engines bear them."""
    return {
        key: int(flat[key]) for key in (least, most) if flat.get(key, math.inf) <= MAX_REPETITION
    }
