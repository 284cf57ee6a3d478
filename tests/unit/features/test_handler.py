"""Accepted to features and request: a pure function (DESIGN §1, §2)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from assay.contracts import iter_examples, schema_root
from assay.envelope import Attributes, Message
from assay.events import EVENTS, GenerationRequested, WalletEventAccepted
from assay_gate.process import load_registry
from assay_runtime.records import Delivery, Record
from assay_runtime.seals import SEAL, TRUSTING, Seals
from assay_runtime.tracing import new_trace
from services.features.handler import FeaturesHandler

SHIPPED = schema_root() / "processes"


def handler_of(root: Path = SHIPPED, seals: Seals = TRUSTING) -> FeaturesHandler:
    registry = load_registry(root)
    process = registry.current("wallet_score")
    assert process is not None
    return FeaturesHandler(process, registry, seals)


@pytest.fixture
def shadowed(tmp_path: Path) -> Path:
    """The processes that ship, and a changed wallet_score beside the current one for all keys."""
    shutil.copytree(SHIPPED, tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "wallet_score@next"
    shutil.copytree(tmp_path / "wallet_score", folder)
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    config["assay"] |= {
        "id": "wallet_score", "version": "next", "shadow": {"of": "wallet_score", "share": 1.0},
    }  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return tmp_path


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
        features, request = handler_of()(delivery)
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
    process = load_registry(SHIPPED).current("wallet_score")
    assert process is not None
    for delivery in deliveries():
        event = GenerationRequested.model_validate_json(handler_of()(delivery)[1].value)
        meta = event.meta
        assert (meta.process_id, meta.process_version, meta.process_hash) == (
            process.id, process.version, process.hash,
        )  # fmt: skip
        assert (meta.step, meta.shadow) == (None, False), "the scorer finds the first step"
        assert meta.unit_id == meta.request_id
        assert meta.attempt == 1


def test_a_shadow_is_asked_the_same_behind_it(shadowed: Path) -> None:
    """Issue 5 item 7: the same input under the same request, marked, after the main request."""
    handler = handler_of(shadowed)
    for delivery in deliveries():
        _, main, shadow = handler(delivery)
        asked, beside = (
            GenerationRequested.model_validate_json(message.value) for message in (main, shadow)
        )
        assert (asked.meta.shadow, beside.meta.shadow) == (False, True)
        assert (asked.meta.process_version, beside.meta.process_version) == ("1.0.0", "next")
        assert asked.meta.process_hash != beside.meta.process_hash
        assert asked.meta.request_id == beside.meta.request_id
        assert (asked.input, main.key) == (beside.input, shadow.key)
        assert main.id != shadow.id
        assert handler(delivery)[2] == shadow


def test_requests_are_sealed_and_the_rest_is_as_it_was(shadowed: Path) -> None:
    """Decision 20: the shadow's too; on the other topics nobody asks for a seal."""
    seals = Seals([b"k" * 32])
    for delivery in deliveries():
        plain = handler_of(shadowed)(delivery)
        features, *requests = handler_of(shadowed, seals)(delivery)
        assert len(requests) == 2
        for request in requests:
            assert seals.doubt(request.id, request.headers, request.value) is None
        assert [features, *(bare(request) for request in requests)] == plain


def bare(message: Message) -> Message:
    headers = tuple(header for header in message.headers if header[0] != SEAL)
    return message._replace(headers=headers)


def test_a_redelivery_repeats_the_same_events() -> None:
    """X.2: same parent, same bytes, same ids."""
    handler = handler_of(seals=Seals([b"k" * 32]))
    for delivery in deliveries():
        assert handler(delivery) == handler(delivery)


def test_integers_beyond_64_bits_do_not_stop_the_wallet() -> None:
    delivery = next(d for d in deliveries() if "balance_raw" in d.value.decode())
    assert len(handler_of()(delivery)) == 2
