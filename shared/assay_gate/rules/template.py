"""Error templates with `{field_name}` in them (SPEC S4.4).

Only keys and indexes are looked up, never attributes: values come from a model.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from assay_gate.paths import array_index
from assay_gate.verdict import SHOWN_CHARACTERS, clipped

_PARSER = string.Formatter()


def check(template: str) -> None:
    """Raises ValueError for a template with unbalanced braces."""
    list(_PARSER.parse(template))


def render(template: str, record: Mapping[str, Any]) -> str:
    """The template with the record's values; an unknown name stays as it is written."""
    parts: list[str] = []
    for literal, name, spec, conversion in _PARSER.parse(template):
        parts.append(literal)
        if name is not None:
            parts.append(_field(name, spec or "", conversion, record))
    return "".join(parts)


def _field(name: str, spec: str, conversion: str | None, record: Mapping[str, Any]) -> str:
    written = "{" + name + "}"
    first, *steps = name.replace("]", "").replace("[", ".").split(".")
    if first not in record:
        return written
    value: Any = record[first]
    for step in steps:
        step = step.strip("'\"")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and (index := array_index(step)) is not None:
            if index >= len(value):
                return written
            value = value[index]
        else:
            return written
    if conversion == "r" and not isinstance(value, dict | list):
        value = repr(clipped(value))
    try:
        text = format(value, spec) if isinstance(value, int | float) else str(clipped(value))
    except ValueError:
        text = str(clipped(value))
    return text[:SHOWN_CHARACTERS]
