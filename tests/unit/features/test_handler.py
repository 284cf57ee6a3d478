"""Accepted to features and request: a pure function (DESIGN §1, §2)."""

from __future__ import annotations

import json

from assay.contracts import iter_examples
from assay.envelope import Attributes
from assay.events import EVENTS, GenerationRequested, WalletEventAccepted
from assay_runtime.records import Delivery, Record
from assay_runtime.tracing import new_trace
from services.features.handler import FeaturesHandler, ProcessIdentity

PROCESS = ProcessIdentity("wallet_score", "1.0.0", "a" * 64, "score")


def deliveries() -> list[Delivery[WalletEventAccepted]]:
    made = []
    for example in iter_examples(WalletEventAccepted.type):
        if example.valid:
            event = WalletEventAccepted.model_validate_json(example.value)
            record = Record(event.type, 0, 1, 2, event.key.encode(), example.value, ())
            attributes = Attributes("parent-1", "/test", event.type, event.meta.request_id)
            made.append(Delivery(record, event, attributes, new_trace()))
    return made


def test_every_accepted_example_gives_features_and_one_request() -> None:
    for delivery in deliveries():
        features, request = FeaturesHandler(PROCESS)(delivery)
        assert [features.topic, request.topic] == [
            "wallet.features.extracted.v1",
            "llm.generation.requested.v1",
        ]
        for message in (features, request):
            event = EVENTS[message.topic].model_validate_json(message.value)
            assert message.key.decode() == delivery.event.meta.wallet
            assert json.loads(message.value)["meta"]["causation_id"] == "parent-1"
            assert event.type == message.topic


def test_the_request_names_the_process_that_will_judge_it() -> None:
    for delivery in deliveries():
        event = GenerationRequested.model_validate_json(FeaturesHandler(PROCESS)(delivery)[1].value)
        meta = event.meta
        assert (meta.process_id, meta.process_version, meta.process_hash, meta.step) == (
            "wallet_score", "1.0.0", "a" * 64, "score",
        )  # fmt: skip
        assert meta.unit_id == meta.request_id
        assert meta.attempt == 1


def test_a_redelivery_repeats_the_same_events() -> None:
    """X.2: same parent, same bytes, same ids."""
    handler = FeaturesHandler(PROCESS)
    for delivery in deliveries():
        assert handler(delivery) == handler(delivery)


def test_integers_beyond_64_bits_do_not_stop_the_wallet() -> None:
    delivery = next(d for d in deliveries() if "balance_raw" in d.value.decode())
    assert len(FeaturesHandler(PROCESS)(delivery)) == 2
