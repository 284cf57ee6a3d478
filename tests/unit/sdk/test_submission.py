"""Wallet records to submissions (SPEC S3.8, X.1)."""

from __future__ import annotations

from typing import Any

import pytest

from assay.submission import SubmissionError, submission_from_record


def test_a_bare_record_is_wrapped() -> None:
    """X.1: a record as an aggregator returned it."""
    record = {"wallet": "0xAb", "wallet_metadata": {}, "address": "0xab"}
    assert submission_from_record(record) == {"address": "0xAb", "evm_data": record}


def test_a_questionnaire_beside_the_sections_is_taken_out() -> None:
    """S3.8: and the record is not changed."""
    record = {"wallet": "0xAb", "tokens": {}, "questionnaire": []}
    assert submission_from_record(record) == {
        "address": "0xAb",
        "questionnaire": [],
        "evm_data": {"wallet": "0xAb", "tokens": {}},
    }
    assert "questionnaire" in record


@pytest.mark.parametrize(
    "submission",
    [
        {"address": "0xAb"},
        {"address": "0xAb", "questionnaire": None, "evm_data": {"wallet": "0xcd"}},
        {"address": 5, "evm_data": []},
    ],
)
def test_a_submission_stays_as_it_is(submission: dict[str, Any]) -> None:
    """X.1: it is ingest that judges it."""
    assert submission_from_record({**submission, "note": 1}) == submission


@pytest.mark.parametrize(
    ("record", "code", "pointer"),
    [
        ([], "not_an_object", ""),
        (None, "not_an_object", ""),
        ({}, "missing_field", "/address"),
        ({"tokens": {}}, "missing_field", "/wallet"),
        ({"wallet": None, "tokens": {}}, "missing_field", "/wallet"),
        ({"wallet": "0xab", "tokens": {}, "evm_data": {}}, "ambiguous_record", "/evm_data"),
    ],
)
def test_what_is_neither(record: Any, code: str, pointer: str) -> None:
    """X.4: refused with the field."""
    with pytest.raises(SubmissionError) as caught:
        submission_from_record(record)
    assert (caught.value.code, caught.value.pointer) == (code, pointer)
