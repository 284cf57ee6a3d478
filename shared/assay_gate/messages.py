"""Schema violations as sentences a model can act on (SPEC S4.5, S5.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay_gate.values import child_path
from assay_gate.verdict import Problem, problem, shown

_MOST_PROBLEMS = 20

_LIMITS = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "minProperties": "must have at least {} fields",
    "maxProperties": "must have at most {} fields",
}
_TYPE_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def problems(errors: Any) -> list[Problem]:
    """The first violations jsonschema-rs lists, most exact path first found."""
    found: list[Problem] = []
    for error in errors:
        found.append(_problem(error))
        if len(found) == _MOST_PROBLEMS:
            break
    return found


def _problem(error: Any) -> Problem:
    path = "$"
    for key in error.instance_path:
        path = child_path(path, key)
    kind: str = error.kind.name
    details: dict[str, Any] = error.kind.as_dict()
    if kind == "required":
        missing = str(details["property"])
        return problem(
            child_path(path, missing), kind, f"required field {shown(missing)} is missing"
        )
    if kind in ("anyOf", "oneOf"):
        return problem(path, kind, _no_branch(details.get("context") or [], path))
    sentence = _SENTENCES.get(kind)
    if kind in _LIMITS:
        text = f"{_LIMITS[kind].format(details['limit'])}, {_measured(kind, error.instance)}"
    elif sentence is not None:
        text = sentence(details, error.instance)
    else:
        text = f"breaks the schema's {kind!r}, got {shown(error.instance)}"
    return problem(path, kind, text)


def _no_branch(context: list[list[Any]], path: str) -> str:
    if any(not branch for branch in context):
        return "fits more than one of the forms that exclude each other"
    nearest = min(context, key=len, default=[])
    if not nearest:
        return "fits none of the allowed forms"
    first = _problem(nearest[0])
    place = "" if first["path"] == "$" else f" at {path}{first['path'][1:]}"
    return f"fits none of the allowed forms; the nearest{place}: {first['message']}"


def _measured(kind: str, instance: Any) -> str:
    if kind.endswith("Length"):
        return f"has {len(instance)}"
    if kind.endswith(("Items", "Properties")):
        return f"has {len(instance)}"
    return f"got {shown(instance)}"


def _type(details: dict[str, Any], instance: Any) -> str:
    wanted = " or ".join(sorted(details["types"]))
    got = "null" if instance is None else f"{type_name(instance)} {shown(instance)}"
    return f"must be {wanted}, got {got}"


def _unexpected(details: dict[str, Any], _: Any) -> str:
    names = ", ".join(shown(str(name)[:40]) for name in details["unexpected"][:5])
    return f"has fields the schema does not allow: {names}; leave them out"


def _options(details: dict[str, Any], instance: Any) -> str:
    options = details["options"]
    listed = ", ".join(shown(option) for option in options[:20])
    return f"must be one of {listed}, got {shown(instance)}"


_SENTENCES: dict[str, Callable[[dict[str, Any], Any], str]] = {
    "type": _type,
    "additionalProperties": _unexpected,
    "unevaluatedProperties": _unexpected,
    "enum": _options,
    "const": lambda d, value: f"must be {shown(d['expected_value'])}, got {shown(value)}",
    "pattern": lambda d, value: f"must match the pattern {d['pattern']}, got {shown(value)}",
    "format": lambda d, value: f"must be a {d['format']}, got {shown(value)}",
    "multipleOf": lambda d, value: f"must be a multiple of {d['multiple_of']}, got {shown(value)}",
    "uniqueItems": lambda d, value: "must not hold the same item twice",
    "contains": lambda d, value: "holds no item of the kind the schema asks for",
    "falseSchema": lambda d, value: f"is not allowed here, got {shown(value)}",
    "not": lambda d, value: f"has a form the schema forbids, got {shown(value)}",
}


def type_name(value: Any) -> str:
    """The JSON Schema name of a value's type."""
    return _TYPE_NAMES.get(type(value), "array" if isinstance(value, list) else "object")
