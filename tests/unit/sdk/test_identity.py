"""Whose request a submitted record is (DESIGN §2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.identity import Identity, identify
from assay.ids import request_id, request_id_from_position

TOPIC = "wallet.event.submitted.v1"
STRUCTURED = ("content-type", b"application/cloudevents+json")
EVENT = {"specversion": "1.0", "id": "e1", "source": "/shop", "type": TOPIC, "data": {}}
Headers = list[tuple[str, bytes | None]]


def of(
    headers: Headers, value: bytes = b"{}", *, tenant: str = "t", place: int = 7, log: str = ""
) -> Identity:
    return identify(TOPIC, 3, place, headers, value, tenant=tenant, log=log)


def test_the_clients_id_and_source_name_the_request() -> None:
    identity = of([("ce_id", b"e1"), ("ce_source", b"/shop")])
    assert identity == Identity(request_id("t", "/shop", "e1"), "e1", "/shop")


def test_the_same_id_is_the_same_request_wherever_it_lies_and_whatever_it_says() -> None:
    first = of([("ce_id", b"e1"), ("ce_source", b"/shop")], b"{}", place=7)
    again = of([("CE_ID", b"e1"), ("ce_source", b"/shop")], b'{"a": 1}', place=8, log="x")
    assert first.request_id == again.request_id


@pytest.mark.parametrize(
    "headers",
    [
        [("ce_id", b"e2"), ("ce_source", b"/shop")],
        [("ce_id", b"e1"), ("ce_source", b"/other")],
        [("ce_id", b"e1")],
    ],
)
def test_another_id_or_source_is_another_request(headers: Headers) -> None:
    assert of(headers).request_id != of([("ce_id", b"e1"), ("ce_source", b"/shop")]).request_id


def test_tenants_do_not_share_requests() -> None:
    headers: Headers = [("ce_id", b"e1"), ("ce_source", b"/shop")]
    assert of(headers, tenant="a").request_id != of(headers, tenant="b").request_id


@pytest.mark.parametrize("headers", [[], [("ce_id", b"")], [("ce_id", None)], [("x", b"1")]])
def test_without_an_id_the_place_on_the_bus_names_it(headers: Headers) -> None:
    identity = of(headers)
    assert identity.request_id == request_id_from_position(TOPIC, 3, 7)
    assert identity.event_id == identity.request_id
    assert of(headers, place=8).request_id != identity.request_id


def test_a_topic_made_anew_is_another_log() -> None:
    """Offsets start again with it; its records are not the old ones."""
    assert of([], log="2026").request_id != of([]).request_id


def test_a_structured_event_is_known_by_its_own_id() -> None:
    identity = of([STRUCTURED], json.dumps(EVENT).encode())
    assert identity == Identity(request_id("t", "/shop", "e1"), "e1", "/shop")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no json",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        json.dumps({k: v for k, v in EVENT.items() if k != "id"}).encode(),
        json.dumps({**EVENT, "source": 5}).encode(),
        json.dumps({**EVENT, "id": "a\ud800"}).encode(),
        json.dumps({**EVENT, "source": "\udfff"}).encode(),
    ],
    ids=["empty", "text", "list", "bytes", "deep", "no id", "bad source", "odd id", "odd source"],
)
def test_a_broken_structured_event_still_has_an_identity(value: bytes) -> None:
    """Its dead letter has to name a request (X.4)."""
    assert of([STRUCTURED], value).request_id == request_id_from_position(TOPIC, 3, 7)


HEADER = st.tuples(
    st.sampled_from(["ce_id", "ce_source", "content-type", "x"]),
    st.none() | st.binary(max_size=12) | st.just(STRUCTURED[1]),
)


@given(headers=st.lists(HEADER, max_size=5), value=st.binary(max_size=30))
def test_every_record_has_an_identity(headers: Any, value: bytes) -> None:
    identity = of(headers, value)
    assert len(identity.request_id) == 36
    assert of(headers, value) == identity
