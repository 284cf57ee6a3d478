"""The declarative checks of seed 4: required, types, enums, ranges (SPEC S4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_gate.messages import type_name
from assay_gate.values import child_path, same
from assay_gate.verdict import Problem, problem, shown

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def required(names: list[str], record: Mapping[str, Any]) -> list[Problem]:
    """Fields that are absent or null."""
    return [
        problem(child_path("$", name), "required", f"required field {name!r} is missing or null")
        for name in names
        if record.get(name) is None
    ]


def types(wanted: Mapping[str, str], record: Mapping[str, Any]) -> list[Problem]:
    """Present fields of another type; a boolean is no number."""
    return [
        problem(
            child_path("$", name), "types",
            f"must be {kind}, got {type_name(record[name])} {shown(record[name])}",
        )
        for name, kind in wanted.items()
        if name in record and not _is(record[name], kind)
    ]  # fmt: skip


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[kind])


def enums(allowed: Mapping[str, list[Any]], record: Mapping[str, Any]) -> list[Problem]:
    """Present fields with a value outside their list; case does not matter for strings."""
    return [
        problem(
            child_path("$", name), "enums",
            f"must be one of {', '.join(map(shown, options))}, got {shown(record[name])}",
        )
        for name, options in allowed.items()
        if name in record and not any(_equal(record[name], option) for option in options)
    ]  # fmt: skip


def _equal(value: Any, option: Any) -> bool:
    if isinstance(value, str) and isinstance(option, str):
        return value.casefold() == option.casefold()
    return same(value, option)


def ranges(bounds: Mapping[str, list[float | None]], record: Mapping[str, Any]) -> list[Problem]:
    """Present fields that are no number inside their inclusive bounds; a null bound is open."""
    found: list[Problem] = []
    for name, (low, high) in bounds.items():
        if name not in record:
            continue
        value = record[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or (low is not None and value < low) or (high is not None and value > high):
            text = f"must be between {low} and {high}, got {shown(value)}"
            found.append(problem(child_path("$", name), "ranges", text))
    return found
