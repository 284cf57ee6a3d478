"""CloudEvents 1.0 on Kafka: binary mode out, both modes in, one id rule, `meta` mirrored
(DESIGN §2)."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.contracts import Example, iter_examples
from assay.envelope import (
    Message,
    emit,
    is_structured,
    read_binary,
    read_structured,
    text_headers,
)
from assay.errors import EnvelopeError
from assay.events import EVENTS, InternalEvent
from assay.ids import EVENT_NAMESPACE, event_id
from assay_runtime.records import Record, event_decoder
from services.ingest.handler import submission_decoder

INTERNAL = [
    example
    for example in iter_examples()
    if example.valid and issubclass(EVENTS[example.event], InternalEvent)
]
PARENT = "0b6f6f6e-52f3-5d6b-8f0e-2f1c7a3e9d10"
ATTRIBUTE = re.compile(r"ce_[a-z0-9]{1,20}")
HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=40)), max_size=8)


def emitted(example: Example, parent: str = PARENT) -> Message:
    event = EVENTS[example.event].model_validate_json(example.value)
    assert isinstance(event, InternalEvent)
    return emit(event, topic=example.event, source="/assay/test", parent_id=parent)


def name(example: Example) -> str:
    return f"{example.event}/{example.why}"


@pytest.mark.parametrize("example", INTERNAL, ids=name)
def test_binary_mode_headers_of_every_event(example: Example) -> None:
    """Attributes in `ce_*` headers, the value the event's own JSON, readable by its consumer."""
    message = emitted(example)
    headers = dict(message.headers)
    assert len(headers) == len(message.headers), "a header stands twice"
    assert headers["content-type"] == b"application/json"
    assert headers["ce_specversion"] == b"1.0"
    assert headers["ce_type"] == example.event.encode()
    assert headers["ce_source"] == b"/assay/test"
    assert uuid.UUID(headers["ce_id"].decode()).version == 5
    for header in headers:
        assert header == "content-type" or ATTRIBUTE.fullmatch(header), header
    json.loads(message.value)
    record = Record(message.topic, 0, 0, 0, message.key, message.value, message.headers)
    delivery = event_decoder(EVENTS[example.event])(record)
    assert delivery.id == message.id


@pytest.mark.parametrize("example", INTERNAL, ids=name)
def test_headers_mirror_meta_and_say_nothing_else(example: Example) -> None:
    message = emitted(example)
    headers = dict(message.headers)
    meta = json.loads(message.value)["meta"]
    mirrored = {
        "ce_requestid": meta["request_id"],
        "ce_tenantid": meta["tenant_id"],
        "ce_attempt": str(meta["attempt"]),
        "ce_subject": meta["wallet"],
        "ce_causationid": meta["causation_id"],
    }
    assert {h: v.decode() for h, v in headers.items() if h in mirrored} == {
        header: value for header, value in mirrored.items() if value
    }
    fixed = {"content-type", "ce_specversion", "ce_id", "ce_source", "ce_type"}
    assert headers.keys() <= fixed | mirrored.keys()
    assert message.key.decode() == (meta["wallet"] or meta["request_id"])


@pytest.mark.parametrize("example", INTERNAL, ids=name)
def test_a_repeat_is_the_same_record_byte_for_byte(example: Example) -> None:
    """No clock and no randomness in what is emitted, so a redelivery repeats the event (X.2)."""
    assert emitted(example) == emitted(example)


def test_bytes_made_already_go_out_as_they_are() -> None:
    """A value is never re-serialised on the way: spacing and key order survive."""
    example = next(e for e in INTERNAL if e.event == "wallet.score.signed.v1")
    event = EVENTS[example.event].model_validate_json(example.value)
    assert isinstance(event, InternalEvent)
    message = emit(event, topic="t", source="s", parent_id=PARENT, value=example.value)
    assert message.value == example.value
    assert message.id == event_id(PARENT, example.event, example.value)


@given(parent=st.text(), kind=st.text(), value=st.binary())
def test_the_one_id_rule(parent: str, kind: str, value: bytes) -> None:
    """ce_id = uuid5(parent, type, SHA-256 of the value): the formula, by other means."""
    digest = hashlib.sha256(value).hexdigest()
    named = json.dumps([parent, kind, digest], separators=(",", ":"))
    assert event_id(parent, kind, value) == str(uuid.uuid5(EVENT_NAMESPACE, named))


IDENTITY = st.tuples(st.text(max_size=8), st.text(max_size=8), st.binary(max_size=8))


@given(first=IDENTITY, second=IDENTITY)
def test_same_id_means_same_parent_type_and_bytes(
    first: tuple[str, str, bytes], second: tuple[str, str, bytes]
) -> None:
    assert (event_id(*first) == event_id(*second)) is (first == second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "bc", b""), ("ab", "c", b"")),
        (('a","b', "c", b""), ("a", 'b","c', b"")),
        (("", "", b""), ("", "", b"\0")),
    ],
)
def test_parts_of_an_id_cannot_flow_into_each_other(
    first: tuple[str, str, bytes], second: tuple[str, str, bytes]
) -> None:
    assert event_id(*first) != event_id(*second)


@given(HEADERS)
def test_no_header_bytes_can_stop_a_reader(headers: list[tuple[str, bytes | None]]) -> None:
    """aiokafka's own text headers raise on bytes that are no UTF-8; ours never do."""
    text = text_headers(headers)
    assert set(text) == {header.lower() for header, _ in headers}
    is_structured(headers)
    with suppress(EnvelopeError):
        read_binary(headers)


def test_bad_utf8_is_marked_and_the_last_of_a_name_wins() -> None:
    assert text_headers([("A", b"\xff"), ("b", None)]) == {"a": "\ufffd", "b": ""}
    assert text_headers([("ce_id", b"1"), ("CE_ID", b"2")]) == {"ce_id": "2"}


GOOD = (
    ("ce_id", b"1"),
    ("ce_source", b"/s"),
    ("ce_type", b"t"),
    ("ce_specversion", b"1.0"),
)


@pytest.mark.parametrize("missing", [header for header, _ in GOOD])
def test_a_missing_attribute_is_named(missing: str) -> None:
    with pytest.raises(EnvelopeError, match=missing):
        read_binary([pair for pair in GOOD if pair[0] != missing])


def test_another_specversion_is_refused() -> None:
    with pytest.raises(EnvelopeError, match=r"0\.3"):
        read_binary([*GOOD[:3], ("ce_specversion", b"0.3")])


STRUCTURED_TYPE = b"application/cloudevents+json; charset=utf-8"
SUBMISSION = {"address": "0x859e1dfb430a7156faef11947f2fc2a3c34b733a", "campaign": "spring"}
DOCUMENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "order-4711",
    "source": "/shop",
    "type": "wallet.event.submitted.v1",
    "data": SUBMISSION,
}


def submitted(value: bytes, headers: tuple[tuple[str, bytes | None], ...]) -> Record:
    return Record("wallet.event.submitted.v1", 3, 7, 0, None, value, headers)


def test_both_modes_of_the_input_topic_are_the_same_request() -> None:
    """Structured mode is accepted there, and names the same request as binary mode would."""
    decode = submission_decoder("default")
    structured = decode(
        submitted(json.dumps(DOCUMENT).encode(), (("content-type", STRUCTURED_TYPE),))
    )
    binary = decode(
        submitted(
            json.dumps(SUBMISSION).encode(),
            (("ce_id", b"order-4711"), ("ce_source", b"/shop"),
             ("ce_type", b"wallet.event.submitted.v1"), ("ce_specversion", b"1.0")),
        )
    )  # fmt: skip
    assert structured.event.request_id == binary.event.request_id
    attributes, data = read_structured(DOCUMENT)
    assert (attributes.id, attributes.source) == ("order-4711", "/shop")
    assert json.loads(data) == SUBMISSION


@pytest.mark.parametrize("attribute", ["id", "source", "type", "specversion", "data"])
def test_a_structured_event_without_an_attribute_is_refused_by_name(attribute: str) -> None:
    with pytest.raises(EnvelopeError, match=attribute):
        read_structured({k: v for k, v in DOCUMENT.items() if k != attribute})


@pytest.mark.parametrize("value", [7, None, "", ["x"], True])
def test_a_structured_attribute_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(EnvelopeError, match="'id'"):
        read_structured({**DOCUMENT, "id": value})


@pytest.mark.parametrize(
    ("content_type", "structured"),
    [
        (b"application/cloudevents+json", True),
        (STRUCTURED_TYPE, True),
        (b"Application/CloudEvents+JSON", True),
        (b"application/json", False),
        (b"application/cloudevents-batch+json", False),
        (b"\xff", False),
        (None, False),
    ],
)
def test_structured_mode_is_known_by_its_content_type(
    content_type: bytes | None, structured: bool
) -> None:
    assert is_structured([("Content-Type", content_type)]) is structured


def test_a_message_without_an_id_says_so() -> None:
    with pytest.raises(EnvelopeError, match="no ce_id"):
        _ = Message("t", b"", b"", ()).id
