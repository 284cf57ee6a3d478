"""What is kept of a record, and under which names (DESIGN §7)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.ids import event_id, request_id, request_id_from_position
from services.evidence.domain import (
    DEAD_LETTER,
    Entry,
    entry_of,
    header_bytes,
    leaf_hash,
    read_header_bytes,
)
from tests.unit.evidence.entries import WALLET, entry

SUBMITTED = "wallet.event.submitted.v1"
SIGNED = "wallet.score.signed.v1"
CHECKSUMMED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"


def _entry(
    topic: str = SIGNED,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    value: bytes = b"{}",
    **changes: Any,
) -> Entry:
    place = {"partition": 1, "offset": 7, "timestamp_ms": 5, **changes}
    return entry_of(
        topic, place.pop("partition"), place.pop("offset"), place.pop("timestamp_ms"), headers,
        value, tenant="default", **place,
    )  # fmt: skip


def test_an_internal_event_names_itself() -> None:
    """DESIGN §2: id, type, request and wallet from its attributes."""
    own = event_id("r", SIGNED, b"{}")
    made = _entry(
        headers=(("ce_id", own.encode()), ("ce_type", SIGNED.encode()), ("ce_requestid", b"r"),
                 ("ce_subject", WALLET.encode())),
    )  # fmt: skip
    assert (made.event_id, made.type, made.request_id, made.wallet) == (own, SIGNED, "r", WALLET)


@pytest.mark.parametrize(
    ("subject", "key", "wallet"),
    [
        (None, CHECKSUMMED.encode(), CHECKSUMMED.lower()),
        (CHECKSUMMED.encode(), b"", CHECKSUMMED.lower()),
        (b"not an address", WALLET.encode(), WALLET),
        (b"", b"request-7", None),
        (None, None, None),
        (None, b"\xff" * 42, None),
        (b"\x00" + WALLET.encode(), None, None),
    ],
)
def test_the_wallet_is_the_subject_or_the_key(
    subject: bytes | None, key: bytes | None, wallet: str | None
) -> None:
    """Issue 3: records of publishers without a subject are found by their wallet too."""
    headers = () if subject is None else (("ce_subject", subject),)
    assert _entry(headers=headers, key=key).wallet == wallet


def test_a_submission_has_the_id_of_its_request_and_content() -> None:
    """DESIGN §2: the same submission again is the same entry wherever it stands; other content
    under the same id is another, of the same request."""
    headers = (("ce_id", b"order"), ("ce_source", b"/shop"), ("ce_type", b"misleading"))
    first = _entry(SUBMITTED, headers, b"{}")
    again = _entry(SUBMITTED, headers, b"{}", offset=8)
    other = _entry(SUBMITTED, headers, b"[]")
    assert first.event_id == again.event_id != other.event_id
    wanted = request_id("default", "/shop", "order")
    assert first.request_id == other.request_id == wanted
    assert first.type == SUBMITTED


def test_a_submission_without_an_id_is_its_place() -> None:
    """DESIGN §2: also across incarnations of an embedded log."""
    made, later = _entry(SUBMITTED, log="one"), _entry(SUBMITTED, log="two")
    assert made.request_id == request_id_from_position(f"one/{SUBMITTED}", 1, 7)
    assert made.request_id != later.request_id
    assert made.event_id != later.event_id


def test_a_dead_letter_is_known_by_what_failed() -> None:
    """Issue 3: its id is of its own, its request the one that failed; written twice it is one."""
    headers = (
        ("ce_id", b"e"), ("ce_type", b"t"), ("assay.request.id", b"forged by the publisher"),
        ("__connect.errors.partition", b"3"), ("__connect.errors.offset", b"9"),
        ("assay.request.id", b"r"),
    )  # fmt: skip
    made = _entry(f"{SUBMITTED}.ingest.dlq", headers)
    again = _entry(f"{SUBMITTED}.ingest.dlq", headers, partition=0, offset=99)
    assert (made.type, made.request_id) == (DEAD_LETTER, "r")
    assert made.event_id == again.event_id != "e"


def test_a_fact_has_its_own_type() -> None:
    """Issue 3: fallback, rejection and conflict records have their own types."""
    value = json.dumps({"record": "SCORE_FALLBACK"}).encode()
    topic = "evidence.record.submitted.v1"
    headers = (("ce_id", b"e"), ("ce_type", topic.encode()))
    assert _entry(topic, headers, value).type == "SCORE_FALLBACK"
    for odd in (b"[]", b"no json", b'{"record": 7}', b'{"record": "a b"}', b"[" * 100_000):
        assert _entry(topic, headers, odd).type == topic


@pytest.mark.parametrize("text", [b"a\x00b", b"x" * 3_000, b"a b", b"\xff", "é".encode()])
def test_names_that_no_column_can_hold_stay_in_the_headers(text: bytes) -> None:
    """X.4, X.5: a hostile header costs no evidence."""
    made = _entry(headers=(("ce_id", text), ("ce_type", text), ("ce_requestid", text),
                           ("ce_subject", text)))  # fmt: skip
    assert (made.type, made.request_id, made.wallet) == (SIGNED, None, None)
    assert len(made.event_id) == 36
    again = _entry(headers=(("ce_id", text),), offset=8)
    assert again.event_id == made.event_id
    assert ("ce_id", text) in made.headers


@given(
    st.lists(st.tuples(st.text(), st.none() | st.binary())),
    st.binary(),
    st.sampled_from([SUBMITTED, SIGNED, "evidence.record.submitted.v1", f"{SIGNED}.x.dlq"]),
    st.none() | st.binary(),
)
def test_any_record_can_be_kept(
    headers: list[tuple[str, bytes | None]], value: bytes, topic: str, key: bytes | None
) -> None:
    """X.4: nothing in a record makes it unkeepable; its headers come back as they were."""
    made = _entry(topic, tuple(headers), value, key=key)
    assert made.value == value
    assert read_header_bytes(header_bytes(made.headers)) == tuple(headers)
    for name in (made.event_id, made.type, made.request_id, made.wallet):
        assert name is None or (0 < len(name) <= 200 and name.isascii() and name.isprintable())


def test_the_leaf_hash_is_over_every_part() -> None:
    """DESIGN §7: value, headers, topic, partition, offset and salt; written out by hand."""
    made = entry(headers=(("a", b"1"), ("b", None)), value=b"v", topic="t", partition=2, offset=258)
    headers = b"\0\0\0\1a" + b"\0\0\0\1" + b"1" + b"\0\0\0\1b" + b"\xff\xff\xff\xff"
    written = (
        b"s" * 16
        + (1).to_bytes(8, "big") + b"v"
        + len(headers).to_bytes(8, "big") + headers
        + (1).to_bytes(8, "big") + b"t"
        + (2).to_bytes(8, "big") + (258).to_bytes(8, "big")
    )  # fmt: skip
    assert (
        leaf_hash(made, b"s" * 16, header_bytes(made.headers)) == hashlib.sha256(written).digest()
    )
