"""Schema-directed coercion: a value that does not validate is read the one way that does.

The walk follows local references (recursive ones too), tries the branches of anyOf and oneOf and
refuses where two of them give different values. What already validates is left as it is, except
that 5.0 becomes 5 where the schema says integer. Nothing is invented: defaults stay out, items
and fields are never dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay_gate.branches import possible
from assay_gate.config import GateConfig
from assay_gate.literals import (
    NOTHING,
    Nothing,
    boolean_from_text,
    integer_from_text,
    match_listed,
    number_from_text,
    whole,
    wrapped,
)
from assay_gate.schema import Located, Schema, below
from assay_gate.subschemas import APPLICATORS, item_schemas, member_schemas
from assay_gate.tokens import Bare, Unreadable, holds_bare
from assay_gate.values import child_path, same, size
from assay_gate.verdict import Repair, repair, shown

ReadText = Callable[[str], Any]
"""Reads a text that is JSON as a whole; raises Unreadable."""

_MOST_QUOTINGS = 3
"""How often JSON may be written as a string within a string."""


class Refused(ValueError):
    """A value that no repair may decide: two readings fit and differ, or digits are lost."""

    def __init__(self, path: str, rule: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.rule = rule


def _ambiguous(path: str, readings: list[Any]) -> Refused:
    listed = " or ".join(shown(reading) for reading in readings[:3])
    message = f"can be read as {listed}; write it so that only one is possible"
    return Refused(path, "ambiguous", message)


class Coercion:
    """One coercion of one value; `repairs` lists what it changed."""

    def __init__(
        self, schema: Schema, config: GateConfig, read_text: ReadText, *, bare: bool = False
    ) -> None:
        """`bare` says that the value may hold words without quotes."""
        self.schema = schema
        self.bare = bare
        self.config = config
        self.repairs: list[Repair] = []
        self._read_text = read_text
        self._steps = 0
        self._active: set[tuple[int, str]] = set()

    def run(self, value: Any) -> Any:
        """The coerced value. Raises Refused, or Unreadable when the work is too much."""
        return self._walk(value, ("", self.schema.document), "$")

    def _walk(self, value: Any, located: Located, path: str) -> Any:
        pointer, node = located
        self._spend(1)
        if not isinstance(node, dict) or not node:
            return value
        if APPLICATORS.isdisjoint(node):
            return self._apply(value, pointer, node, path)
        entry = (id(value), pointer)
        if entry in self._active:
            return value
        self._active.add(entry)
        try:
            return self._apply(value, pointer, node, path)
        finally:
            self._active.discard(entry)

    def _apply(self, value: Any, pointer: str, node: dict[str, Any], path: str) -> Any:
        if isinstance(reference := node.get("$ref"), str):
            target = self.schema.resolve(reference)
            if target is not None:
                value = self._walk(value, target, path)
        if "type" in node:
            value = self._typed(value, node, path)
        listed = node.get("enum") if "enum" in node else [node["const"]] if "const" in node else []
        if listed:
            value = self._listed(value, listed, path)
        for index, part in enumerate(node.get("allOf") or ()):
            value = self._walk(value, (below(pointer, "allOf", index), part), path)
        for keyword in ("anyOf", "oneOf"):
            if node.get(keyword):
                value = self._union(value, pointer, node[keyword], keyword, path)
        if "if" in node:
            condition = (below(pointer, "if"), node["if"])
            chosen = "then" if self._fits(condition, value) else "else"
            if chosen in node:
                value = self._walk(value, (below(pointer, chosen), node[chosen]), path)
        if isinstance(value, dict):
            return self._object(value, pointer, node, path)
        if isinstance(value, list):
            return self._array(value, pointer, node, path)
        return value

    def _typed(self, value: Any, node: dict[str, Any], path: str) -> Any:
        types = node["type"] if isinstance(node["type"], list) else [node["type"]]
        if isinstance(value, float) and "integer" in types and "number" not in types:
            if value.is_integer() and isinstance(whole(value), Nothing):
                raise Refused(path, "integer", "is too large for a decimal; write all its digits")
            return self._changed(value, whole(value), "float → int", path)
        if not isinstance(value, str) or "string" in types:
            return value
        readings: list[tuple[Any, str]] = []
        for name in types:
            reading, kind = self._from_text(value, name)
            if isinstance(reading, Nothing) or any(same(reading, r) for r, _ in readings):
                continue
            readings.append((reading, kind))
        if len(readings) > 1:
            raise _ambiguous(path, [reading for reading, _ in readings])
        if not readings:
            return value
        return self._changed(value, *readings[0], path)

    def _from_text(self, text: str, name: str) -> tuple[Any, str]:
        if name == "integer":
            return integer_from_text(text), "string → int"
        if name == "number":
            number = number_from_text(text)
            return number, "string → int" if isinstance(number, int) else "string → float"
        if name == "boolean":
            return boolean_from_text(text), "string → boolean"
        if name == "object":
            return self._container(text, dict, "{"), "string → object"
        if name == "array":
            read = self._container(text, list, "[")
            return (wrapped(text) if isinstance(read, Nothing) else read), "string → array"
        return NOTHING, ""

    def _container(self, text: str, wanted: type, opener: str) -> Any:
        if opener not in text:
            return NOTHING
        value: Any = text
        try:
            for _ in range(_MOST_QUOTINGS):
                value = self._read_text(value)
                if not isinstance(value, str):
                    break
        except Unreadable:
            return NOTHING
        return value if isinstance(value, wanted) else NOTHING

    def _listed(self, value: Any, listed: list[Any], path: str) -> Any:
        match = match_listed(value, listed, self.config)
        if isinstance(match, Nothing) or match is value:
            return value
        before = value.word if isinstance(value, Bare) else value
        return self._changed(before, match, "enum", path)

    def _union(self, value: Any, pointer: str, branches: list[Any], keyword: str, path: str) -> Any:
        places = [(below(pointer, keyword, index), part) for index, part in enumerate(branches)]
        fitting = [place for place in places if self._fits(place, value)]
        if fitting:
            if keyword == "oneOf" and len(fitting) > 1:
                return value
            return self._agreed(value, [self._tried(value, place, path) for place in fitting])
        readings: list[tuple[Any, list[Repair]]] = []
        for place in places:
            if not possible(value, place[1], self.schema, self.config):
                continue
            outcome, repairs = self._tried(value, place, path)
            if self._fits(place, outcome) and not any(same(outcome, r) for r, _ in readings):
                readings.append((outcome, repairs))
        if len(readings) > 1:
            raise _ambiguous(path, [reading for reading, _ in readings])
        return self._agreed(value, readings)

    def _agreed(self, value: Any, outcomes: list[tuple[Any, list[Repair]]]) -> Any:
        """The outcome of all branches that fit, or the value itself where they differ."""
        if not outcomes or any(repr(o) != repr(outcomes[0][0]) for o, _ in outcomes[1:]):
            return value
        self.repairs += outcomes[0][1]
        return outcomes[0][0]

    def _tried(self, value: Any, place: Located, path: str) -> tuple[Any, list[Repair]]:
        kept, self.repairs = self.repairs, []
        try:
            return self._walk(value, place, path), self.repairs
        finally:
            self.repairs = kept

    def _fits(self, place: Located, value: Any) -> bool:
        if self.bare and holds_bare(value):
            return False
        self._spend(1 + size(value) // 8)
        return self.schema.branch(place[0])(value)

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > self.config.max_work:
            raise Unreadable("too_long", "the answer is too large to be repaired", 0)

    def _object(self, value: dict[str, Any], pointer: str, node: dict[str, Any], path: str) -> Any:
        result = value
        for name, item in value.items():
            for place in member_schemas(name, pointer, node, self.schema):
                item = self._walk(item, place, child_path(path, name))
            if item is not value[name]:
                if result is value:
                    result = dict(value)
                result[name] = item
        for name, part in (node.get("dependentSchemas") or {}).items():
            if name in result:
                result = self._walk(result, (below(pointer, "dependentSchemas", name), part), path)
        return result

    def _array(self, value: list[Any], pointer: str, node: dict[str, Any], path: str) -> Any:
        prefix, rest = item_schemas(pointer, node)
        result = value
        for index, item in enumerate(value):
            place = prefix[index] if index < len(prefix) else rest
            changed = self._walk(item, place, child_path(path, index))
            if changed is not item:
                if result is value:
                    result = list(value)
                result[index] = changed
        return result

    def _changed(self, before: Any, after: Any, kind: str, path: str) -> Any:
        if isinstance(after, Nothing):
            return before
        self.repairs.append(repair(path, kind, before, after))
        return after
