"""Whether two JSON Schemas describe the same contract, both ways (DESIGN §2).

Old values must stay valid under the new schema and new values under the old one, so the one edit
of substance that is allowed is a new optional property in an open object; titles, descriptions
and the order of things are free. Everything else is a break, keywords unknown to this module
included: a registry's checker that lets what it does not know pass has let changed constants pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_FREE = {
    "$schema", "$id", "$defs", "$comment", "title", "description", "examples", "deprecated",
    "readOnly", "writeOnly",
}  # fmt: skip
_BRANCHES = ("anyOf", "oneOf", "allOf")
_OWN_RULE = {
    "$ref", "type", "enum", "const", "properties", "required", "additionalProperties", "items",
    "default", *_BRANCHES,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Break:
    """One edit that breaks a reader or a writer; `path` is where in the value."""

    path: str
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def breaks_between(old: dict[str, Any], new: dict[str, Any]) -> list[Break]:
    """Every breaking edit between two schemas; empty where they are compatible."""
    return list(_Comparison(old, new, frozenset()).nodes(old, new, "$"))


class _Comparison:
    """One walk over two schemas; `seen` are the pairs of nodes that were compared already."""

    def __init__(
        self, old: dict[str, Any], new: dict[str, Any], seen: frozenset[tuple[str, str]]
    ) -> None:
        self._old_root = old
        self._new_root = new
        self._seen = set(seen)

    def nodes(self, old: Any, new: Any, path: str) -> Iterator[Break]:
        pair = (_text(old), _text(new))
        if "$ref" in pair[0] or "$ref" in pair[1]:
            if pair in self._seen:
                return  # a recursive definition, or one that is used twice
            self._seen.add(pair)
        a, b = _resolved(old, self._old_root), _resolved(new, self._new_root)
        yield from _type(a, b, path)
        yield from _values(a, b, path)
        yield from self._object(a, b, path)
        if "items" in a or "items" in b:
            yield from self.nodes(a.get("items", True), b.get("items", True), f"{path}[]")
        for keyword in _BRANCHES:
            yield from self._branches(keyword, a, b, path)
        # An absent field means its default, so another default is another meaning.
        if a.get("default") != b.get("default"):
            yield Break(
                path, "default", f"default was {a.get('default')!r}, is {b.get('default')!r}"
            )
        for keyword in sorted((a.keys() | b.keys()) - _FREE - _OWN_RULE):
            if _text(a.get(keyword)) != _text(b.get(keyword)):
                was, now = a.get(keyword), b.get(keyword)
                yield Break(path, keyword, f"{keyword} was {was!r}, is {now!r}")

    def _object(self, a: dict[str, Any], b: dict[str, Any], path: str) -> Iterator[Break]:
        before, after = a.get("properties", {}), b.get("properties", {})
        rest, now = a.get("additionalProperties", True), b.get("additionalProperties", True)
        for name in before:
            where = f"{path}.{name}"
            if name not in after:
                yield Break(where, "removed property", "the property is gone")
            else:
                yield from self.nodes(before[name], after[name], where)
        for name in sorted(after.keys() - before.keys()):
            where = f"{path}.{name}"
            if rest is False:
                yield Break(where, "closed object", "a closed object gained a property")
            elif _text(rest) not in ("true", "{}"):
                yield from self.nodes(rest, after[name], where)
        was_required, is_required = set(a.get("required", ())), set(b.get("required", ()))
        for name in sorted(is_required - was_required):
            yield Break(f"{path}.{name}", "new required", "is required now and was not")
        for name in sorted(was_required - is_required):
            yield Break(f"{path}.{name}", "no longer required", "was required and is not now")
        if (rest is False) != (now is False):
            word = "opened" if rest is False else "closed"
            yield Break(path, f"{word} object", f"the object was {word}")
        elif isinstance(rest, dict) or isinstance(now, dict):
            yield from self.nodes(rest, now, f"{path}.*")

    def _branches(
        self, keyword: str, a: dict[str, Any], b: dict[str, Any], path: str
    ) -> Iterator[Break]:
        before, after = list(a.get(keyword, ())), list(b.get(keyword, ()))
        for branch in list(before):  # the order of branches means nothing
            for other in after:
                trial = _Comparison(self._old_root, self._new_root, frozenset(self._seen))
                if next(trial.nodes(branch, other, path), None) is None:
                    before.remove(branch)
                    after.remove(other)
                    break
        if len(before) != len(after):
            yield Break(path, keyword, f"{keyword} has other branches than before")
            return
        for branch, other in zip(before, after, strict=True):
            yield from self.nodes(branch, other, path)


def _type(a: dict[str, Any], b: dict[str, Any], path: str) -> Iterator[Break]:
    was, now = _as_list(a.get("type")), _as_list(b.get("type"))
    if sorted(was) != sorted(now):
        yield Break(path, "type", f"type was {_or(was)}, is {_or(now)}")


def _values(a: dict[str, Any], b: dict[str, Any], path: str) -> Iterator[Break]:
    was, now = _allowed(a), _allowed(b)
    if was == now:
        return
    if was is None or now is None:
        yield Break(path, "values", "a list of allowed values " + ("came" if now else "went"))
        return
    if gone := sorted(was - now):
        yield Break(path, "values", f"no longer allowed: {', '.join(gone)}")
    if added := sorted(now - was):
        yield Break(path, "values", f"unknown to readers of the old: {', '.join(added)}")


def _allowed(schema: dict[str, Any]) -> set[str] | None:
    """Allowed values as JSON, which tells 1 from true; None where any is."""
    if "const" in schema:
        return {_text(schema["const"])}
    return {_text(value) for value in schema["enum"]} if "enum" in schema else None


def _resolved(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """The schema as an object, its `$ref` followed; a constraint beside a `$ref` holds too."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    while "$ref" in schema:
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        target: Any = root
        for part in schema["$ref"].removeprefix("#").split("/")[1:]:
            target = target[part.replace("~1", "/").replace("~0", "~")]
        if siblings.keys() - _FREE - {"default"}:
            parts = [*siblings.pop("allOf", ()), target]
            schema = {**siblings, "allOf": parts}
        else:
            schema = {**target, **siblings}
    return dict(schema)


def _as_list(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _or(types: list[str]) -> str:
    return " or ".join(sorted(types)) or "anything"


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
