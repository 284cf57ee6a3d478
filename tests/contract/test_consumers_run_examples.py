"""The pure stages take every valid example of their topic, and what they make of it keeps the
contract of the topic it goes to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import jsonschema
import pytest

from assay.contracts import Example, iter_examples, load_schema, schema_root
from assay.envelope import Message, emit
from assay.events import EVENTS, GenerationAnswered, InternalEvent, WalletEventAccepted
from assay.topics import catalogue
from assay_gate.process import load_registry
from assay_runtime.records import Delivery, Record, event_decoder
from services.features import app as features
from services.features.handler import FeaturesHandler
from services.validator import app as validator
from services.validator.handler import ValidatorHandler
from services.validator.settings import ValidatorSection

PROCESSES = load_registry(schema_root() / "processes")
WALLET_SCORE = PROCESSES.by_id["wallet_score"]
PARENT = "0b6f6f6e-52f3-5d6b-8f0e-2f1c7a3e9d10"


def valid(event: str) -> list[Example]:
    return [example for example in iter_examples(event) if example.valid]


def delivered(example: Example, process_hash: str | None = None) -> Delivery[Any]:
    """The example as it comes from the bus, of a process that exists."""
    model = EVENTS[example.event]
    event = model.model_validate_json(example.value)
    assert isinstance(event, InternalEvent)
    if process_hash is not None:
        meta = event.meta.model_copy(update={"process_hash": process_hash})
        event = event.model_copy(update={"meta": meta})
    message = emit(event, topic=example.event, source="/assay/test", parent_id=PARENT)
    record = Record(message.topic, 0, 0, 0, message.key, message.value, message.headers)
    return event_decoder(model)(record)


def check(messages: Sequence[Message], parent: Delivery[Any], produces: set[str]) -> None:
    assert messages
    for message in messages:
        assert message.topic in produces
        event = catalogue()[message.topic].event
        value = json.loads(message.value)
        jsonschema.Draft202012Validator(load_schema(event)).validate(value)
        assert value["meta"]["causation_id"] == parent.id
        assert value["meta"]["request_id"] == parent.event.meta.request_id
        assert dict(message.headers)["ce_type"] == event.encode()
        assert message.key == parent.record.key


@pytest.mark.parametrize("example", valid(WalletEventAccepted.type), ids=lambda e: e.why)
def test_features(example: Example) -> None:
    handler = FeaturesHandler(WALLET_SCORE, PROCESSES)
    run(handler, delivered(example), set(features.PRODUCES))


@pytest.mark.parametrize("example", valid(GenerationAnswered.type), ids=lambda e: e.why)
def test_validator(example: Example) -> None:
    handler = ValidatorHandler(PROCESSES, ValidatorSection())
    run(handler, delivered(example, WALLET_SCORE.hash), set(validator.PRODUCES))


def run(
    handler: Callable[[Delivery[Any]], Sequence[Message]],
    delivery: Delivery[Any],
    produces: set[str],
) -> None:
    messages = handler(delivery)
    check(messages, delivery, produces)
    assert handler(delivery) == messages, "a redelivery must repeat the same events"
