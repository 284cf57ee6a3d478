"""How a record is read as a request's end (SPEC X.2, X.4; issue item 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.client import Outcome, read_outcome, submission_bytes
from assay.events import GenerationAccepted, Meta
from assay.topics import catalogue
from assay_runtime.dead_letters import dead_letter
from assay_runtime.failures import DeadLetter
from assay_runtime.records import Record
from tests.unit.sdk.small_oracle import rejected, signed

REQUEST = "6e3a2f0c-7c35-5b5e-9a41-0d8f6a1b2c3d"
ADDRESS = "0x859e1Dfb430A7156fAEF11947F2FC2a3C34B733A"
SIGNED = "wallet.score.signed.v1"
REJECTED = "llm.generation.rejected.v1"
ACCEPTED = "llm.generation.accepted.v1"
DEAD = "wallet.event.submitted.v1.ingest.dlq"
SCORER_DEAD = "llm.generation.requested.v1.scorer.dlq"
SIGNER_DEAD = "wallet.score.validated.v1.signer.dlq"


def accepted(**changes: Any) -> bytes:
    meta = Meta(request_id=REQUEST, tenant_id="t", process_id="open_notes", process_version="1.0.0")
    fields: dict[str, Any] = {"output": [{"a": 1}], "attempts": 2, "model": "m", **changes}
    return GenerationAccepted(meta=meta, input={}, **fields).to_bytes()


def test_a_signed_event_is_the_flat_score() -> None:
    outcome = read_outcome(SIGNED, signed(REQUEST, ADDRESS, 745).to_bytes(), ())
    assert outcome is not None
    assert (outcome.status, outcome.request_id) == ("signed", REQUEST)
    assert outcome.to_json() == outcome.score
    assert outcome.score is not None
    assert outcome.score["wallet_address"] == ADDRESS
    assert outcome.score["signature"] == "ab" * 64


@pytest.mark.parametrize(
    "changes",
    [{"terminal": False}, {"ends_as": "fallback_score"}, {"empty_result": True}],
    ids=["retried", "fallback", "empty"],
)
def test_an_attempt_that_something_follows_ends_nothing(changes: dict[str, object]) -> None:
    """A fallback is signed later, an empty result accepted later: the rejection before it is not
    the request's end."""
    assert read_outcome(REJECTED, rejected(REQUEST, ADDRESS, **changes).to_bytes(), ()) is None


def test_a_terminal_rejection_carries_its_reasons() -> None:
    outcome = read_outcome(REJECTED, rejected(REQUEST, ADDRESS).to_bytes(), ())
    error = {"path": "$.score", "rule": "cross_check", "message": "does not follow"}
    assert outcome == Outcome(
        REQUEST, "rejected", reason="does not follow", code="answers_rejected", errors=(error,)
    )
    assert outcome.to_json() == {
        "request_id": REQUEST,
        "status": "rejected",
        "code": "answers_rejected",
        "reason": "does not follow",
        "errors": [error],
    }


def test_an_accepted_answer_ends_a_request_of_a_process_without_scores() -> None:
    """S5.4: with its output as it is, and what a caller is told of it."""
    outcome = read_outcome(ACCEPTED, accepted(fallback="answers_rejected", model=None), ())
    assert outcome is not None
    assert (outcome.status, outcome.score) == ("accepted", None)
    assert outcome.to_json() == {
        "request_id": REQUEST,
        "status": "accepted",
        "output": [{"a": 1}],
        "process_id": "open_notes",
        "process_version": "1.0.0",
        "attempts": 2,
        "model": None,
        "fallback": "answers_rejected",
        "repairs": [],
    }
    assert outcome.reason  # `assay publish --wait` says why there is no score


def test_a_step_that_another_follows_ends_nothing() -> None:
    """S4.12: only the last step's output is the process's."""
    assert read_outcome(ACCEPTED, accepted(final=False), ()) is None


@pytest.mark.parametrize("topic", [ACCEPTED, REJECTED, SCORER_DEAD])
def test_a_shadow_ends_nothing(topic: str) -> None:
    """Issue 5 item 7: it has its original's request id, whose end it must not become."""
    value = {
        ACCEPTED: accepted(),
        REJECTED: rejected(REQUEST, ADDRESS).to_bytes(),
        SCORER_DEAD: accepted(),  # any event of the flow: the mark is in its meta
    }[topic]
    headers = [("assay.request.id", REQUEST.encode())]
    assert read_outcome(topic, value, headers) is not None
    event = json.loads(value)
    event["meta"]["shadow"] = True
    assert read_outcome(topic, json.dumps(event).encode(), headers) is None


@pytest.mark.parametrize("topic", [ACCEPTED, REJECTED, SCORER_DEAD, SIGNER_DEAD])
def test_what_no_service_asked_is_marked(topic: str) -> None:
    """Decision 20: an outcome for who asked it on the bus, and for nobody whose id it bears."""
    value = {REJECTED: rejected(REQUEST, ADDRESS).to_bytes()}.get(topic, accepted())
    headers = [("assay.request.id", REQUEST.encode())]
    event = json.loads(value)
    for unsealed in (False, True):
        event["meta"]["unsealed"] = unsealed
        outcome = read_outcome(topic, json.dumps(event).encode(), headers)
        assert outcome is not None
        assert outcome.unsealed is unsealed
    assert outcome is not None
    assert topic != ACCEPTED or "no score is signed" in (outcome.reason or "")


def test_a_dead_letter_is_known_by_its_headers() -> None:
    headers = [
        ("ce_requestid", b"of-the-record"),
        ("__connect.errors.exception.message", "zu groß".encode()),
        ("assay.error.code", b"too_large"),
        ("assay.request.id", REQUEST.encode()),
        ("assay.error.pointer", b"/evm_data/tokens"),
    ]
    outcome = read_outcome(DEAD, b"\xff", headers)
    error = {"path": "$.evm_data.tokens", "rule": "too_large", "message": "zu groß"}
    assert outcome == Outcome(
        REQUEST, "dead_lettered", reason="zu groß", code="too_large", errors=(error,)
    )


def test_the_runtimes_header_wins_over_a_publishers_of_the_same_name() -> None:
    """A publisher cannot end another's request: dead letters add their headers behind his."""
    headers = [("assay.request.id", b"another"), ("assay.request.id", REQUEST.encode())]
    outcome = read_outcome(DEAD, b"", headers)
    assert outcome is not None
    assert outcome.request_id == REQUEST


def written(topic: str, service: str, own: dict[str, str], reason: DeadLetter) -> Any:
    """What the runtime makes of a record that bears these headers."""
    headers = tuple((name, value.encode()) for name, value in own.items())
    record = Record(topic, 0, 7, 0, None, b"{junk", headers)
    made = dead_letter(record, reason, service)
    return read_outcome(made.topic, made.value or b"", made.headers)


def test_what_any_client_may_have_asked_is_doubtful() -> None:
    """Decision 20: without the seals' keys nobody can tell whose a refused request is, whatever
    its code. Other dead letters come of what services wrote."""
    own = {"ce_requestid": REQUEST}
    for code in ("envelope", "unknown_process"):
        forged = written("llm.generation.requested.v1", "scorer", own, DeadLetter("no", code=code))
        assert (forged.request_id, forged.doubtful) == (REQUEST, True)
    for topic, service in (
        ("llm.generation.retried.v1", "scorer"),
        ("llm.generation.answered.v1", "validator"),
        ("wallet.score.validated.v1", "signer"),
    ):
        known = written(topic, service, own, DeadLetter("no"))
        assert (known.request_id, known.doubtful) == (REQUEST, False)


def test_a_publishers_own_headers_name_no_request() -> None:
    """X.4: whose a submission is, ingest works out; without its word a dead letter ends nobody's,
    and headers of the record that are named as the runtime's count nowhere."""
    submitted = "wallet.event.submitted.v1"
    own = {
        "ce_requestid": REQUEST, "assay.request.id": REQUEST, "assay.error.code": "own",
        "__connect.errors.exception.message": "own",
    }  # fmt: skip
    assert written(submitted, "ingest", own, DeadLetter("no")) is None
    told = written(submitted, "ingest", own, DeadLetter("no", request_id="worked-out"))
    assert (told.request_id, told.code, told.reason) == ("worked-out", "rejected", "no")
    answered = written("llm.generation.answered.v1", "validator", {**own, "ce_requestid": "its"},
                       DeadLetter("no"))  # fmt: skip
    assert (answered.request_id, answered.code) == ("its", "rejected")


def test_a_dead_letter_of_nobody_is_no_outcome() -> None:
    assert read_outcome(DEAD, b"x", [("other", b"1"), ("ce_requestid", None)]) is None


@pytest.mark.parametrize("topic", [SIGNED, ACCEPTED, REJECTED])
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
