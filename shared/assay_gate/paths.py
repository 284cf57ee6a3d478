"""Reading and setting what a JSON path like `$.scoreBreakdown.surveyMatch` names."""

from __future__ import annotations

from typing import Any

from assay_gate.verdict import GateError


def parse_path(path: str) -> list[str | int]:
    """The keys and indexes of a path made of `.name`, `["name"]` and `[0]`; raises GateError."""
    if not path.startswith("$"):
        raise GateError(f"JSON path {path!r} does not begin with $")
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        if path[position] == ".":
            ends = [path.find(mark, position + 1) for mark in ".["]
            end = min((found for found in ends if found >= 0), default=len(path))
            steps.append(path[position + 1 : end])
        else:
            end = path.find("]", position) + 1
            inner = path[position + 1 : end - 1]
            if path[position] != "[" or end == 0 or not inner:
                raise GateError(f"JSON path {path!r} is malformed at character {position}")
            steps.append(inner[1:-1] if inner[0] in "\"'" else _index(inner, path))
        if steps[-1] == "":
            raise GateError(f"JSON path {path!r} is malformed at character {position}")
        position = end
    return steps


def array_index(text: str) -> int | None:
    """The index that the text writes in ASCII digits; None where it is none. Python takes other
    digits for a number in one place and for none in another, and refuses those of thousands."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _index(text: str, path: str) -> int:
    if (index := array_index(text)) is None:
        raise GateError(f"JSON path {path!r} has no index in brackets")
    return index


def assign(value: Any, path: str, new: Any) -> tuple[Any, Any]:
    """A copy of `value` with `new` at `path`, and what stood there; raises GateError."""
    steps = parse_path(path)
    if not steps:
        return new, value
    root = _copy(value, path)
    parent = root
    for step in steps[:-1]:
        child = _copy(_at(parent, step, path), path)
        parent[step] = child
        parent = child
    last = steps[-1]
    if isinstance(parent, dict) and isinstance(last, str):
        before = parent.get(last)
    else:
        before = _at(parent, last, path)
    parent[last] = new
    return root, before


def _copy(value: Any, path: str) -> Any:
    if isinstance(value, dict | list):
        return value.copy()
    raise GateError(f"JSON path {path!r} leads through a value without members")


def _at(parent: Any, step: str | int, path: str) -> Any:
    try:
        return parent[step]
    except (KeyError, IndexError, TypeError):
        raise GateError(f"JSON path {path!r} names nothing in the value") from None
