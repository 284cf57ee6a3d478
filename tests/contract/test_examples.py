"""Every example, judged by pydantic and by jsonschema, which must agree (DESIGN §2)."""

from __future__ import annotations

import json

import jsonschema
import pytest
from pydantic import ValidationError

from assay.contracts import Example, iter_examples, load_schema, schema_root
from assay.events import EVENTS
from assay.schema_export import schema_text
from assay.topics import catalogue

EXAMPLES = list(iter_examples())


def by_pydantic(example: Example) -> bool:
    try:
        EVENTS[example.event].model_validate_json(example.value)
    except ValidationError:
        return False
    return True


def by_jsonschema(example: Example) -> bool:
    validator = jsonschema.Draft202012Validator(load_schema(example.event))
    return bool(validator.is_valid(json.loads(example.value)))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.event}/{e.valid}/{e.why}")
def test_two_validators_agree_with_the_file_name(example: Example) -> None:
    assert by_pydantic(example) is example.valid
    assert by_jsonschema(example) is example.valid


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_every_event_has_examples_of_both_kinds(event: str) -> None:
    kinds = {example.valid for example in iter_examples(event)}
    assert kinds == {True, False}


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_committed_schema_is_the_models(event: str) -> None:
    path = schema_root() / "events" / f"{event}.schema.json"
    assert path.read_text(encoding="utf-8") == schema_text(event), "run make schemas"


def test_nothing_is_orphaned() -> None:
    """Each schema file, example folder and topic belongs to an event."""
    files = {p.name.removesuffix(".schema.json") for p in (schema_root() / "events").iterdir()}
    folders = {p.name for p in (schema_root() / "examples").iterdir()}
    assert files == folders == set(EVENTS)
    assert {topic.event for topic in catalogue()} == set(EVENTS)


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.valid], ids=lambda e: e.why)
def test_unknown_fields_survive_a_hop(example: Example) -> None:
    """Event schemas are open: what a consumer does not know it keeps (DESIGN §2)."""
    document = {**json.loads(example.value), "added_later": {"n": 2**70}}
    event = EVENTS[example.event].model_validate_json(json.dumps(document))
    assert json.loads(event.to_bytes())["added_later"] == {"n": 2**70}
