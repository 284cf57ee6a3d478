"""How a record is read as a request's end (SPEC X.2, X.4; issue item 2)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.client import Outcome, read_outcome, submission_bytes
from assay.topics import catalogue
from tests.unit.sdk.small_oracle import rejected, signed

REQUEST = "6e3a2f0c-7c35-5b5e-9a41-0d8f6a1b2c3d"
ADDRESS = "0x859e1Dfb430A7156fAEF11947F2FC2a3C34B733A"
SIGNED = "wallet.score.signed.v1"
REJECTED = "llm.generation.rejected.v1"
DEAD = "wallet.event.submitted.v1.ingest.dlq"


def test_a_signed_event_is_the_flat_score() -> None:
    outcome = read_outcome(SIGNED, signed(REQUEST, ADDRESS, 745).to_bytes(), ())
    assert outcome is not None
    assert (outcome.status, outcome.request_id) == ("signed", REQUEST)
    assert outcome.to_json() == outcome.score
    assert outcome.score is not None
    assert outcome.score["wallet_address"] == ADDRESS
    assert outcome.score["signature"] == "ab" * 64


@pytest.mark.parametrize(
    "changes", [{"terminal": False}, {"ends_as": "fallback_score"}], ids=["retried", "fallback"]
)
def test_an_attempt_that_something_follows_ends_nothing(changes: dict[str, object]) -> None:
    """A fallback is signed later: the rejection before it is not the request's end."""
    assert read_outcome(REJECTED, rejected(REQUEST, ADDRESS, **changes).to_bytes(), ()) is None


def test_a_terminal_rejection_carries_its_reasons() -> None:
    outcome = read_outcome(REJECTED, rejected(REQUEST, ADDRESS).to_bytes(), ())
    assert outcome == Outcome(
        REQUEST, "rejected", reason="does not follow", code="answers_rejected"
    )
    assert outcome.to_json() == {
        "request_id": REQUEST,
        "status": "rejected",
        "code": "answers_rejected",
        "reason": "does not follow",
    }


def test_a_dead_letter_is_known_by_its_headers() -> None:
    headers = [
        ("ce_requestid", b"of-the-record"),
        ("__connect.errors.exception.message", "zu groß".encode()),
        ("assay.error.code", b"too_large"),
        ("assay.request.id", REQUEST.encode()),
    ]
    outcome = read_outcome(DEAD, b"\xff", headers)
    assert outcome == Outcome(REQUEST, "dead_lettered", reason="zu groß", code="too_large")


def test_the_runtimes_header_wins_over_a_publishers_of_the_same_name() -> None:
    """A publisher cannot end another's request: dead letters add their headers behind his."""
    headers = [("assay.request.id", b"another"), ("assay.request.id", REQUEST.encode())]
    outcome = read_outcome(DEAD, b"", headers)
    assert outcome is not None
    assert outcome.request_id == REQUEST


def test_a_dead_letter_of_nobody_is_no_outcome() -> None:
    assert read_outcome(DEAD, b"x", [("other", b"1"), ("ce_requestid", None)]) is None


@pytest.mark.parametrize("topic", [SIGNED, REJECTED])
@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b"null"])
def test_what_is_not_as_promised_is_a_value_error(topic: str, value: bytes) -> None:
    with pytest.raises(ValueError, match=r"validation error|Invalid JSON"):
        read_outcome(topic, value, ())


@given(
    topic=st.sampled_from([topic.name for topic in catalogue().dead_letters()]),
    value=st.binary(max_size=30),
    headers=st.lists(
        st.tuples(
            st.sampled_from(["ce_requestid", "assay.request.id", "assay.error.code", "x"]),
            st.none() | st.binary(max_size=20),
        )
    ),
)
def test_no_dead_letter_can_stop_a_reader(
    topic: str, value: bytes, headers: list[tuple[str, bytes | None]]
) -> None:
    outcome = read_outcome(topic, value, headers)
    assert outcome is None or json.dumps(outcome.to_json())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=6,
    )
)
def test_submissions_are_published_as_the_json_they_are(data: object) -> None:
    """UTF-8 always; text that UTF-8 cannot carry goes out escaped and unharmed."""
    submission = {"address": ADDRESS, "evm_data": data}
    value = submission_bytes(submission)
    assert json.loads(value.decode("utf-8")) == submission


def test_a_lone_surrogate_is_published_escaped() -> None:
    assert b'"\\ud800"' in submission_bytes({"address": "\ud800"})
    assert "ü".encode() in submission_bytes({"address": "ü"})
