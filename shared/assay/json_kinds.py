"""What a JSON value is called in an error message."""

from __future__ import annotations

from collections.abc import Mapping


def kind(value: object) -> str:
    """Its type, for people: "a string", "null"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, Mapping) else "a list"
