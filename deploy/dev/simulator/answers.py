"""The answer of a model that behaves: a wallet score, a fitting instance, or plain words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any

from deploy.dev.simulator import wallet_scores
from deploy.dev.simulator.instances import SchemaAnswers
from deploy.dev.simulator.instances.strings import words
from deploy.dev.simulator.obedience import obeyed
from deploy.dev.simulator.protocols import Call


@lru_cache(maxsize=128)
def _compiled(schema: str) -> SchemaAnswers:
    return SchemaAnswers(json.loads(schema))


class Answer:
    """What the model would say to one call; BadSchema or NoInstance if it cannot."""

    def __init__(self, call: Call, *, gullible: bool = False) -> None:
        task = call.task
        self._seed = f"{call.seed}/{task}"
        self._schema = _compiled(json.dumps(call.schema))
        self.is_score = call.answer == "schema" and _is_score(call.schema)
        self.is_text = call.answer == "text"
        self.value = self._value(call, task)
        if gullible:
            self.value = obeyed(task, self.value)

    @property
    def text(self) -> str:
        """The answer as it is sent."""
        return self.value if self.is_text else written(self.value)

    def accepts(self, value: Any) -> bool:
        """Whether another value would fit the schema of the call as well."""
        return self._schema.accepts(value)

    def other(self) -> Any:
        """A different answer that fits as well; the same one where there is no other."""
        if self.is_score:
            return _shifted(self.value)
        if self.is_text:
            return words(20, 60, Random(self._seed + "/other"))
        return self._schema.instance(self._seed + "/other")

    def _value(self, call: Call, task: str) -> Any:
        if call.answer == "schema":
            return self._scored(task, call.schema) if self.is_score else self._instance()
        text = words(20, 60, Random(self._seed))
        return {"answer": text} if call.answer == "json" else text

    def _instance(self) -> Any:
        return self._schema.instance(self._seed)

    def _scored(self, task: str, schema: Any) -> Any:
        score = _within(wallet_scores.score(task), schema["properties"])
        if self.accepts(score):
            return score
        instance = self._instance()
        mixed = {**instance, **score}
        return mixed if self.accepts(mixed) else instance


def written(value: Any) -> str:
    """A value as a model writes it."""
    return json.dumps(value, ensure_ascii=False)


def _is_score(schema: Any) -> bool:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return isinstance(properties, Mapping) and {"score", "scoreBreakdown"} <= properties.keys()


def _within(score: dict[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """A score inside the constants, ranges and lengths of a schema, keys in its order."""
    parts = properties["scoreBreakdown"]
    parts = parts.get("properties", {}) if isinstance(parts, Mapping) else {}
    breakdown = {name: _bounded(v, parts.get(name)) for name, v in score["scoreBreakdown"].items()}
    found = {**score, "scoreBreakdown": breakdown, "score": wallet_scores.total(breakdown)}
    return {name: _bounded(found[name], sub) for name, sub in properties.items() if name in found}


def _bounded(value: Any, schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return value
    if "const" in schema:
        return schema["const"]
    if isinstance(value, int):
        value = min(value, schema.get("maximum", value))
        return max(value, schema.get("minimum", value))
    if isinstance(value, str | list):
        most = schema.get("maxLength" if isinstance(value, str) else "maxItems")
        return value if most is None else value[:most]
    return value


def _shifted(score: dict[str, Any]) -> dict[str, Any]:
    old = score["scoreBreakdown"]
    shifted = old["activity"] - 20 if old["activity"] >= 20 else old["activity"] + 20
    breakdown = {**old, "activity": shifted}
    return {**score, "scoreBreakdown": breakdown, "score": wallet_scores.total(breakdown)}
