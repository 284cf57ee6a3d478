"""Objects and arrays, their members made by the generator that is passed in."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

from deploy.dev.simulator.instances.demands import Demands, both, canonical
from deploy.dev.simulator.instances.failures import Unsatisfiable
from deploy.dev.simulator.instances.strings import words

MOST_MEMBERS = 10_000
_NAME_DRAWS = 60
_ITEM_DRAWS = 60
_KEPT = 0.8

Make = Callable[[Any], Any]


def object_of(demands: Demands, rng: Random, make: Make, *, deep: bool) -> dict[str, Any]:
    """An object: what is required, most of what is optional, and more names if counts ask."""
    least = int(demands.limits.get("minProperties", 0))
    most = int(demands.limits.get("maxProperties", MOST_MEMBERS))
    if least > MOST_MEMBERS:
        raise Unsatisfiable("minProperties")
    if max(least, len(demands.required)) > most:
        raise Unsatisfiable("maxProperties")
    chosen = [
        name
        for name in demands.properties
        if name in demands.required or (not deep and rng.random() < _KEPT)
    ]
    chosen += [name for name in demands.required if name not in demands.properties]
    spare = most - len(demands.required)
    found: dict[str, Any] = {}
    for name in chosen:
        if name in demands.required:
            found[name] = _member(demands, name, make)
        elif spare > 0 and _optional(demands, name, make, found):
            spare -= 1
    for name in demands.properties:
        if len(found) < least and name not in found:
            _optional(demands, name, make, found)
    open_map = not demands.properties and demands.additional is not True and not deep
    wanted = max(least, min(most, len(found) + rng.randint(1, 2)) if open_map else 0)
    for _ in range(_NAME_DRAWS + 2 * wanted):
        if len(found) >= wanted:
            return found
        try:
            name = _new_name(demands, rng, make)
        except Unsatisfiable:
            break
        if name not in found and name not in demands.properties:
            _optional(demands, name, make, found)
    if len(found) < least:
        raise Unsatisfiable("minProperties")
    return found


def _member(demands: Demands, name: str, make: Make) -> Any:
    schema = _schema_of(demands, name)
    if schema is False:
        declared = name in demands.properties
        raise Unsatisfiable("properties" if declared else "additionalProperties", f".{name}")
    try:
        return make(schema)
    except Unsatisfiable as failure:
        raise failure.under(f".{name}") from None


def _schema_of(demands: Demands, name: str) -> Any:
    schema = demands.of_property(name)
    declared = name in demands.properties
    return schema if declared else both(schema, demands.unevaluated_properties)


def _optional(demands: Demands, name: str, make: Make, found: dict[str, Any]) -> bool:
    try:
        found[name] = _member(demands, name, make)
    except Unsatisfiable:
        return False
    return True


def _new_name(demands: Demands, rng: Random, make: Make) -> str:
    ways: list[Any] = [{"pattern": pattern} for pattern in demands.pattern_properties]
    if demands.additional is not False and demands.unevaluated_properties is not False:
        ways.append(True)
    if not ways:
        raise Unsatisfiable("additionalProperties")
    way = rng.choice(ways)
    if way is True and demands.names is True:
        return re.sub(r"\W", "_", words(1, 16, rng)) + rng.choice(("", "_2", "_b", "_7"))
    name: str = make(both({"type": "string", **({} if way is True else way)}, demands.names))
    return name


def array_of(demands: Demands, rng: Random, make: Make, *, deep: bool) -> list[Any]:
    """An array: tuple items first, then what must be contained, then plain items."""
    least = int(demands.limits.get("minItems", 0))
    most = int(demands.limits.get("maxItems", MOST_MEMBERS))
    if least > MOST_MEMBERS:
        raise Unsatisfiable("minItems")
    if least > most:
        raise Unsatisfiable("maxItems")
    contained = [schema for schema, count in demands.contains for _ in range(count)]
    rest = both(demands.items, demands.unevaluated_items)
    length = len(demands.prefix)
    typical = 0 if deep else length + (rng.randint(1, 3) if rest is not False else 0)
    wanted = max(least, typical, len(contained) + (length if contained else 0))
    wanted = min(most, wanted if demands.items is not False else max(least, length))
    if len(contained) > wanted:
        raise Unsatisfiable("contains")
    places = list(range(wanted - len(contained), wanted))
    if demands.items is False:
        places = rng.sample(range(wanted), len(contained))
    held = dict(zip(places, contained, strict=True))
    found: list[Any] = []
    seen: set[str] = set()
    for index in range(wanted):
        # What is contained counts as evaluated, so unevaluatedItems does not speak of it.
        schema = demands.of_item(index) if index < length or index in held else rest
        schema = both(schema, held.get(index, True))
        try:
            found.append(_item(schema, demands.unique, make, seen))
        except Unsatisfiable as failure:
            if len(found) < max(least, len(contained)):
                raise failure.under(f"[{index}]") from None
            return found
    return found


def _item(schema: Any, unique: bool, make: Make, seen: set[str]) -> Any:
    for _ in range(_ITEM_DRAWS):
        item = make(schema)
        if not unique:
            return item
        if (key := canonical(item)) not in seen:
            seen.add(key)
            return item
    raise Unsatisfiable("uniqueItems")
