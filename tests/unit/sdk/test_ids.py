"""The one id rule (DESIGN §2)."""

from __future__ import annotations

import hashlib
import uuid

import pytest

from assay.ids import (
    EVENT_NAMESPACE,
    REQUEST_NAMESPACE,
    event_id,
    request_id,
    request_id_from_position,
)


def test_ids_are_fixed_for_ever() -> None:
    """X.2: another value here is another identity for every event ever published."""
    digest = hashlib.sha256(b"{}").hexdigest()
    assert event_id("p", "t.v1", b"{}") == str(
        uuid.uuid5(EVENT_NAMESPACE, f'["p","t.v1","{digest}"]')
    )
    assert request_id("t", "s", "ü") == str(
        uuid.uuid5(REQUEST_NAMESPACE, r'["client","t","s","\u00fc"]')
    )
    assert request_id_from_position("a", 1, 2) == str(
        uuid.uuid5(REQUEST_NAMESPACE, '["position","a","1","2"]')
    )
    assert event_id("p", "t.v1", b"{}") == "e5f6cd50-8423-5f1e-9847-fab18f6309c2"
    assert request_id("t", "s", "c") == "36eaeb37-69b6-5fb6-96d5-17dc5f181e40"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "bc", "d"), ("ab", "c", "d")),
        (('a","b', "c", "d"), ("a", "b", 'c","d')),
        (("a", "b", ""), ("a", "", "b")),
        (("a", "b", "C"), ("a", "b", "c")),
        (("a", "b", "\ud800"), ("a", "b", "\\ud800")),
    ],
)
def test_parts_never_run_into_each_other(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    """X.2: no two requests share an id by the way their parts are joined."""
    assert request_id(*one) != request_id(*other)


def test_a_position_is_no_client_id() -> None:
    """X.2: a client cannot choose the id of a record without one."""
    assert request_id("t", "1", "2") != request_id_from_position("t", 1, 2)
    assert request_id_from_position("t", 1, 11) != request_id_from_position("t", 11, 1)


def test_same_id_means_same_parent_type_and_bytes() -> None:
    """X.2: each of the three makes another event."""
    first = event_id("p", "t", b"v")
    assert event_id("p", "t", b"v") == first
    assert (
        len({first, event_id("q", "t", b"v"), event_id("p", "u", b"v"), event_id("p", "t", b"w")})
        == 4
    )
    assert uuid.UUID(first).version == 5
