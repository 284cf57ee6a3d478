"""Units of a batch and their requests: identity, form, and what is no unit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay.batch.items import BadItem, index_items, numbered_lines, parse_item
from assay.batch.requests import Batch

WALLET = "0x52908400098527886E0F7030069857D2E4169EE7"


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_the_input_is_what_stands_beside_the_id() -> None:
    """S4.10: injected fields are no input."""
    item = parse_item(line(unit_id=7, text="x", _metadata={"n": 1}))
    assert (item.unit_id, item.unit, item.input) == (7, "7", {"text": "x"})
    assert parse_item(line(unit_id="a", input={"text": "x"})).input == {"text": "x"}
    assert parse_item(line(unit_id="a", input="x")).input == {"input": "x"}
    assert parse_item(line(unit_id="a", input={}, text="x")).input == {"input": {}, "text": "x"}


def test_an_id_made_from_the_content() -> None:
    made = parse_item(b'{"a": 1, "b": 2}').unit
    assert made == parse_item(b' {"b":2,"a":1}\n').unit
    assert made != parse_item(b'{"a": 1, "b": 3}').unit


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[1]", "no JSON object"),
        (b"{", "no JSON"),
        (b'{"a": 1, "a": 2}', "the key 'a' stands twice"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": "\\ud800"}', "no UTF-8 text"),
        (b'{"a": "\xff"}', "no UTF-8 text"),
        (b'{"unit_id": true}', "neither a text nor an integer"),
        (b'{"unit_id": ""}', "1 to 256 characters"),
        (b'{"a": ' + b"[" * 100_000 + b"}", "nested too deeply"),
    ],
)
def test_what_is_no_unit(text: bytes, reason: str) -> None:
    with pytest.raises(BadItem, match=reason):
        parse_item(text)


def test_places_lead_back_to_lines() -> None:
    lines = [line(unit_id="a") + b"\n", b"\n", line(unit_id="b", x="ü") + b"\n", line(unit_id=3)]
    index = index_items(numbered_lines(lines))
    text = b"".join(lines)
    for unit, offset in index.places.items():
        assert parse_item(text[offset:].split(b"\n")[0]).unit == unit
    assert list(index.places) == ["a", "b", "3"]


def test_one_unit_of_one_batch_is_one_event() -> None:
    """DESIGN §2: whatever makes it again makes the same bytes under the same ids."""
    batch, item = Batch("b1", "p"), parse_item(line(unit_id="a", text="x"))
    first, again = batch.first_request(item), batch.first_request(item)
    assert (first.id, first.value, first.key) == (again.id, again.value, again.key)
    others = [
        Batch("b2", "p").first_request(item),
        Batch("b1", "q").first_request(item),
        Batch("b1", "p", "t").first_request(item),
        batch.first_request(parse_item(line(unit_id="a", text="y"))),
        batch.first_request(parse_item(line(unit_id="b", text="x"))),
    ]
    assert len({json.loads(m.value)["meta"]["request_id"] for m in [first, *others]}) == 6
    assert len({message.id for message in [first, *others]}) == 6


def test_a_request_names_its_unit_and_wallet() -> None:
    message = Batch("b", "wallet_score").first_request(parse_item(line(unit_id=7, address=WALLET)))
    meta = json.loads(message.value)["meta"]
    assert (meta["unit_id"], meta["process_id"], meta["wallet"]) == (
        "7", "wallet_score", WALLET.lower()
    )  # fmt: skip
    assert message.key == WALLET.lower().encode()
    assert meta["process_hash"] is None
    assert meta["accepted_at_ms"] is None


def test_a_retry_is_another_request_and_the_same_each_time() -> None:
    """S4.6."""
    failure: dict[str, Any] = {
        "unit_id": "a",
        "failure_stage": "validation",
        "input": {"text": "x", "draft": "d"},
        "raw_response": "{}",
        "errors": [{"path": "$", "rule": "r", "message": "m"}],
        "retry_count": 2,
        "_metadata": {"step": "polish"},
    }
    batch = Batch("b", "p")
    event = json.loads(batch.retry_request(failure).value)
    assert (event["meta"]["attempt"], event["meta"]["step"]) == (4, "polish")
    assert event["input"] == failure["input"]
    assert event["feedback"] == failure["errors"]
    assert batch.retry_of(failure) == event["meta"]["request_id"]
    assert batch.retry_of({**failure, "retry_count": 3}) != batch.retry_of(failure)


def test_what_no_event_can_carry() -> None:
    batch = Batch("b", "p")
    with pytest.raises(BadItem, match="takes 1,048,576"):
        batch.first_request(parse_item(line(unit_id="a", text="x" * 1_048_576)))
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    try:
        batch.first_request(parse_item(line(unit_id="a", text=deep)))
    except BadItem as bad:
        assert "no event can carry it" in str(bad)  # noqa: PT017 - either is right
