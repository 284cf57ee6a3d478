"""Pydantic (what services run) and JSON Schema (what other languages run) judge alike, also beside
the examples: each field of an example replaced by odd values, or left out (DESIGN §2)."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from assay.contracts import Example, iter_examples, load_schema
from assay.events import EVENTS

MISSING = object()
ODD: list[Any] = [
    MISSING, None, True, 0, -1, 1.5, 10**30, "", "x", "A" * 5000, [], [1], {}, {"a": 1},
    "2026-01-16T10:30:0\u0663Z",
]  # fmt: skip
RICHEST = [
    max((e for e in iter_examples(event) if e.valid), key=lambda e: len(e.value))
    for event in sorted(EVENTS)
]
Path = tuple[str | int, ...]


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every field and item below the top."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def spoiled(document: Any, path: Path, odd: Any) -> Any:
    made = copy.deepcopy(document)
    target = made
    for key in path[:-1]:
        target = target[key]
    if odd is MISSING:
        del target[path[-1]]
    else:
        target[path[-1]] = odd
    return made


def accepted_by_model(event: str, document: Any) -> bool:
    try:
        EVENTS[event].model_validate_json(json.dumps(document))
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("example", RICHEST, ids=lambda e: e.event)
def test_they_agree_about_spoiled_examples(example: Example) -> None:
    document = json.loads(example.value)
    by_schema = jsonschema.Draft202012Validator(load_schema(example.event))
    verdicts = set()
    for path in places(document):
        for odd in ODD:
            value = spoiled(document, path, odd)
            verdict = by_schema.is_valid(value)
            verdicts.add(verdict)
            assert accepted_by_model(example.event, value) is verdict, (path, odd)
    assert verdicts == {True, False}


def test_the_one_known_difference_is_on_the_strict_side() -> None:
    """JSON Schema takes 745.0 for an integer; the services do not, since a signature is over
    integers and 1e300 is one by the same reading."""
    event = "wallet.score.signed.v1"
    document = json.loads(next(iter_examples(event)).value)
    document["score"] = 745.0
    assert jsonschema.Draft202012Validator(load_schema(event)).is_valid(document)
    assert not accepted_by_model(event, document)
