"""Hostile submissions (SPEC S3.8, X.4, X.5)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assay.submission import SubmissionError, submission_from_record
from services.ingest.domain.fingerprint import canonical_evm_bytes, evm_sha256
from services.ingest.domain.strict_json import JsonLimits, read_json
from services.ingest.domain.submission import Submission, parse_submission

ADDRESS = "0xC6635c942d2183D9415354B59c557EfbD8e3158C"
TEXT = st.text(st.characters(), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=25,
)
FIELDS = st.sampled_from(["address", "questionnaire", "evm_data", "wallet", "question", "answer"])
SHAPED = st.recursive(
    JSON | st.just(ADDRESS),
    lambda inner: st.dictionaries(FIELDS, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=15,
)
SMALL = JsonLimits(max_bytes=2_000, max_depth=6, max_elements=30, max_digits=50)


def outcome(raw: bytes, limits: JsonLimits | None = None) -> Submission | SubmissionError:
    try:
        return parse_submission(raw, limits)
    except SubmissionError as error:
        return error


def parsed_or_refused(raw: bytes, limits: JsonLimits) -> None:
    got = outcome(raw, limits)
    if isinstance(got, SubmissionError):
        assert got.code
        assert 0 < len(got.message) < 400
        got.message.encode()
        assert got.pointer == "" or got.pointer.startswith("/")
        got.pointer.encode()
        return
    assert got.key == got.address.lower()
    assert len(got.content_sha256) == 64
    json.dumps([got.questionnaire, got.evm_data], allow_nan=False, ensure_ascii=False).encode()


@given(st.binary(max_size=200), st.sampled_from([SMALL, JsonLimits()]))
def test_any_bytes(raw: bytes, limits: JsonLimits) -> None:
    """X.4: a submission or a refusal that says something, never another error."""
    parsed_or_refused(raw, limits)


@given(SHAPED, st.sampled_from([SMALL, JsonLimits()]))
def test_any_json(value: Any, limits: JsonLimits) -> None:
    """X.4, X.5: the same for everything that looks like a submission."""
    parsed_or_refused(json.dumps(value).encode(), limits)
    parsed_or_refused(json.dumps({"address": ADDRESS, "evm_data": value}).encode(), limits)


@given(st.text(st.sampled_from('{}[]",:01.e-+NaInfty\\ud8 '), max_size=60))
def test_near_json(text: str) -> None:
    """X.4: broken JSON inside good JSON."""
    parsed_or_refused(text.encode(), SMALL)
    parsed_or_refused(f'{{"address": "{ADDRESS}", "evm_data": {text}}}'.encode(), SMALL)


@given(st.dictionaries(TEXT, JSON, max_size=5))
def test_what_is_accepted_is_a_fixed_point(record: dict[str, Any]) -> None:
    """S3.8: normalised data read again is the same data with the same hash, and nothing to note;
    so whoever reads the accepted event gets the hash that stands in it."""
    first = outcome(json.dumps({"address": ADDRESS, "evm_data": record}).encode())
    if isinstance(first, SubmissionError):
        assert first.code in ("wallet_mismatch", "duplicate_key")
        return
    assert first.evm_data is not None
    again, notes = read_json(canonical_evm_bytes(first.evm_data), JsonLimits())
    assert again == first.evm_data
    assert notes == []
    assert evm_sha256(again) == first.evm_sha256


@given(st.dictionaries(TEXT, st.integers() | TEXT | st.booleans(), max_size=6), st.randoms())
def test_order_and_whitespace_make_no_difference(record: dict[str, Any], order: Any) -> None:
    """X.2: a repeat is recognised by what it says."""
    record = {key.encode("utf-8", "replace").decode(): value for key, value in record.items()}
    keys = list(record)
    order.shuffle(keys)
    documents = (
        json.dumps({"address": ADDRESS, "evm_data": record}),
        json.dumps({"evm_data": {key: record[key] for key in keys}, "address": ADDRESS}, indent=2),
    )
    one, other = (outcome(document.encode()) for document in documents)
    if isinstance(one, SubmissionError) or isinstance(other, SubmissionError):
        assert isinstance(one, SubmissionError)
        assert isinstance(other, SubmissionError)
        assert one.code == other.code == "wallet_mismatch"
        return
    assert one.content_sha256 == other.content_sha256


@given(SHAPED)
def test_wrapping_is_total(record: Any) -> None:
    """X.1: a submission or a refusal; wrapping a submission again changes nothing."""
    try:
        submission = submission_from_record(record)
    except SubmissionError:
        return
    assert set(submission) <= {"address", "questionnaire", "evm_data"}
    if not isinstance(record, dict) or "evm_data" not in record:
        assert submission_from_record(submission) == submission
