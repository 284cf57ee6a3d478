"""The search: readings of a schema in turn, a value for each, verified before it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from random import Random
from typing import Any

from deploy.dev.simulator.instances import containers, numbers, strings
from deploy.dev.simulator.instances.demands import ALL_TYPES, Demands
from deploy.dev.simulator.instances.document import Document
from deploy.dev.simulator.instances.failures import Exhausted, NoInstance, Unsatisfiable
from deploy.dev.simulator.instances.variants import Variants

_SEARCHES = 6
_STEPS = 25_000
_MOST_READINGS = 200
_DEEP = 3
_TOO_DEEP = 40
_ROUNDS = 8
_NULL_LAST = 0.85
_SCALARS = ("null", "boolean", "integer", "number", "string")


class SchemaAnswers:
    """Fitting instances of one schema; BadSchema if it is none."""

    def __init__(self, schema: Mapping[str, Any] | bool) -> None:
        self._document = Document(schema)

    def accepts(self, value: Any) -> bool:
        """Whether a value is valid (formats are asserted)."""
        return self._document.validator.is_valid(value)

    def instance(self, seed: str) -> Any:
        """The same value for the same seed; NoInstance names the keyword in the way."""
        failure = Unsatisfiable("")
        left = _STEPS
        for attempt in range(_SEARCHES):
            search = _Search(self._document, Random(f"{seed}/{attempt}"), left)
            try:
                value = search.instance(self._document.root)
                left = search.left
            except Unsatisfiable as found:
                failure, left = found, search.left
                continue
            except Exhausted:
                failure = search.failure or failure
                break
            error = next(self._document.validator.iter_errors(value), None)
            if error is None:
                return value
            failure = Unsatisfiable(error.kind.name, "".join(map(_step, error.instance_path)))
        raise NoInstance(failure.keyword or "unknown", "$" + failure.path)


class _Search:
    def __init__(self, document: Document, rng: Random, steps: int) -> None:
        self._document = document
        self._rng = rng
        self.left = steps
        self._variants = Variants(document, rng, self._spend)

    @property
    def failure(self) -> Unsatisfiable | None:
        """What was last in the way."""
        return self._variants.failure

    def instance(self, schema: Any, depth: int = 0) -> Any:
        self._spend()
        if depth > _TOO_DEEP:
            raise self._failed(Unsatisfiable("$ref"))
        readings = self._variants.of(schema, deep=depth >= _DEEP)
        failure: Unsatisfiable | None = None
        for demands in islice(readings, _MOST_READINGS):
            try:
                for value in self._candidates(demands, depth):
                    if not demands.checked or self._document.fits(schema, value):
                        return value
                    self._failed(Unsatisfiable(self._document.broken_keyword(schema, value)))
                failure = self.failure
            except Unsatisfiable as found:
                failure = self._failed(found)
        raise failure or self.failure or Unsatisfiable("false")

    def _candidates(self, demands: Demands, depth: int) -> Iterator[Any]:
        """Values to try; raises Unsatisfiable if the last type of the last round has none."""
        if demands.values is not None:
            demands.checked = True
            yield from self._rng.sample(demands.values, len(demands.values))
            return
        failure: Unsatisfiable | None = None
        for _ in range(_ROUNDS if demands.checked else 1):
            for kind in self._types(demands, depth):
                try:
                    yield self._value(kind, demands, depth)
                except Unsatisfiable as found:
                    failure = found
        if failure is not None:
            raise failure

    def _types(self, demands: Demands, depth: int) -> list[str]:
        if demands.types is None:
            implied = _implied(demands)
            others = sorted(ALL_TYPES - {implied}) if demands.checked else []
            return [implied, *others]
        kinds = self._rng.sample(sorted(demands.types), len(demands.types))
        if depth >= _DEEP:
            kinds.sort(key=lambda kind: kind not in _SCALARS)
        elif "null" in kinds and self._rng.random() < _NULL_LAST:
            kinds.sort(key=lambda kind: kind == "null")
        return kinds

    def _value(self, kind: str, demands: Demands, depth: int) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            return self._rng.random() < 0.5
        if kind in ("integer", "number"):
            return numbers.number(demands, self._rng, whole=kind == "integer")
        if kind == "string":
            return strings.text(demands, self._rng)
        build = containers.object_of if kind == "object" else containers.array_of
        return build(
            demands,
            self._rng,
            lambda schema: self.instance(schema, depth + 1),
            deep=depth >= _DEEP,
        )

    def _failed(self, failure: Unsatisfiable) -> Unsatisfiable:
        self._variants.failure = failure
        return failure

    def _spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Exhausted


def _implied(demands: Demands) -> str:
    limits = demands.limits
    if demands.required or demands.properties or demands.pattern_properties:
        return "object"
    if demands.additional is not True or demands.names is not True or "minProperties" in limits:
        return "object"
    if demands.prefix or demands.items is not True or demands.contains or demands.unique:
        return "array"
    if "minItems" in limits or "maxItems" in limits:
        return "array"
    if demands.multiples or any(key.lower().endswith("imum") for key in limits):
        return "number"
    return "string"


def _step(step: str | int) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step}"
