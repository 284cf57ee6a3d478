"""The readings of a schema: references followed, branches chosen, everything merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from deploy.dev.simulator.instances.demands import Demands
from deploy.dev.simulator.instances.document import Document
from deploy.dev.simulator.instances.failures import Unsatisfiable
from deploy.dev.simulator.instances.negation import negations

Trail = tuple[str, ...]
# One choice to make: the keyword it comes from, and the schemas one of which must hold.
Choice = tuple[str, list[Any]]
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MOST_WEIGHED = 4


class Variants:
    """Readings in random order, those that end soonest first once a value is `deep`."""

    def __init__(self, document: Document, rng: Random, spend: Callable[[], None]) -> None:
        self._document = document
        self._rng = rng
        self._spend = spend
        self.failure: Unsatisfiable | None = None

    def of(self, schema: Any, *, deep: bool, trail: Trail = ()) -> Iterator[Demands]:
        """Every reading, lazily; none where `schema` cannot be met (see `failure`)."""
        if schema is True:
            yield Demands()
            return
        if schema is False:
            self.failure = self.failure or Unsatisfiable("false")
            return
        try:
            own = Demands.of(schema)
            choices = list(self._choices(schema))
        except Unsatisfiable as failure:
            self.failure = failure
            return
        yield from self._product(own, choices, deep, trail)

    def _product(
        self, left: Demands, choices: list[Choice], deep: bool, trail: Trail
    ) -> Iterator[Demands]:
        self._spend()
        if not choices:
            yield left
            return
        (keyword, options), rest = choices[0], choices[1:]
        for option in self._ordered(keyword, options, deep):
            followed = trail
            if keyword in _REFERENCES:
                if option in trail:
                    self.failure = Unsatisfiable("$ref")
                    continue
                followed = (*trail, option)
                option = self._document.resolve(option)
            for right in self.of(option, deep=deep, trail=followed):
                try:
                    merged = left.and_(right)
                except Unsatisfiable as failure:
                    self.failure = failure
                    continue
                yield from self._product(merged, rest, deep, trail)

    def _ordered(self, keyword: str, options: list[Any], deep: bool) -> list[Any]:
        if len(options) < 2:
            return options
        if keyword == "not":
            *ways, last = options
            return [*self._rng.sample(ways, len(ways)), last]
        mixed = self._rng.sample(options, len(options))
        return sorted(mixed, key=self._weight) if deep else mixed

    def _choices(self, schema: Mapping[str, Any]) -> Iterator[Choice]:
        for keyword in _REFERENCES:
            if isinstance(reference := schema.get(keyword), str):
                yield keyword, [reference]
        for part in schema.get("allOf", ()):
            yield "allOf", [part]
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                yield keyword, list(schema[keyword])
        if "not" in schema:
            yield "not", negations(schema["not"])
        if "if" in schema:
            yield (
                "if",
                [
                    {"allOf": [schema["if"], schema.get("then", True)]},
                    {"allOf": [{"not": schema["if"]}, schema.get("else", True)]},
                ],
            )
        for keyword in ("dependencies", "dependentSchemas", "dependentRequired"):
            yield from self._dependent(schema.get(keyword, {}))

    def _dependent(self, dependencies: Mapping[str, Any]) -> Iterator[Choice]:
        for name, needs in dependencies.items():
            needed = {"required": needs} if isinstance(needs, list) else needs
            yield (
                "dependentSchemas",
                [
                    {"required": [name], "allOf": [needed]},
                    {"properties": {name: False}},
                ],
            )

    def _weight(self, schema: Any, level: int = 0) -> int:
        """About how much nesting a schema forces on a value."""
        if not isinstance(schema, Mapping) or "const" in schema or "enum" in schema:
            return 0
        if level > _MOST_WEIGHED:
            return 9
        total = 0
        for keyword in _REFERENCES:
            if isinstance(reference := schema.get(keyword), str):
                total += 1 + self._weight(self._document.resolve(reference), level + 1)
        total += sum(self._weight(part, level + 1) for part in schema.get("allOf", ()))
        for keyword in ("anyOf", "oneOf"):
            if schema.get(keyword):
                total += min(self._weight(part, level + 1) for part in schema[keyword])
        for name in schema.get("required", ()):
            total += 1 + self._weight(schema.get("properties", {}).get(name, True), level + 1)
        if schema.get("minItems", 0):
            total += 2 + self._weight(schema.get("items", True), level + 1)
        return total
