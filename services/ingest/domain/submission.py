"""From the bytes of a submission to a checked one (SPEC S3.8, X.4, X.5).

Pure. Every refusal is a SubmissionError with a code, a JSON pointer and a sentence; ingest turns
it into problem+json or a dead letter.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay.json_kinds import kind
from assay.submission import SUBMISSION_FIELDS, SubmissionError, named_wallets
from assay.wallet import AddressError, parse_address
from services.ingest.domain.fingerprint import (
    canonical_bytes,
    canonical_evm_bytes,
    content_sha256,
)
from services.ingest.domain.strict_json import (
    MAX_NOTES,
    JsonLimits,
    Note,
    pointer_token,
    read_json,
)

MAX_QUESTIONS = 50


@dataclass(frozen=True, slots=True)
class Submission:
    """A submission that may be accepted.

    `address` is spelled as the caller spelled it, `key` is lower case. `evm_data` and the hex
    SHA-256 of its canonical bytes are None where the aggregator has to be asked. `notes` says
    what was normalised or ignored.
    """

    address: str
    key: str
    questionnaire: list[dict[str, str | None]]
    evm_data: dict[str, Any] | None
    evm_sha256: str | None = None
    notes: tuple[Note, ...] = ()

    @property
    def content_sha256(self) -> str:
        """Hash of what the caller sent; equal for a repeat (DESIGN §2)."""
        return content_sha256(self.address, self.questionnaire, self.evm_sha256)


def parse_submission(raw: bytes, limits: JsonLimits | None = None) -> Submission:
    """The submission in a request body or an event's value.

    Codes besides those of `read_json`: not_an_object, missing_field, wrong_type,
    invalid_address, too_many_questions, wallet_mismatch.
    """
    limits = limits or JsonLimits()
    document, notes = read_json(raw, limits)
    if not isinstance(document, dict):
        raise SubmissionError(
            "not_an_object", "", f"a submission is a JSON object, this is {kind(document)}"
        )
    if "address" not in document:
        raise SubmissionError("missing_field", "/address", _address_missing(document))
    bare = submission_for_address(document["address"])
    submission = replace(
        bare,
        questionnaire=_questionnaire(document.get("questionnaire")),
        evm_data=_evm_data(document.get("evm_data"), bare.key),
        notes=(*notes, *_unknown_fields(document)),
    )
    return _hashed(submission, limits)


def submission_for_address(address: object) -> Submission:
    """A submission of an address alone, as `GET /score?address=` makes one."""
    if not isinstance(address, str):
        raise SubmissionError(
            "wrong_type", "/address", f"address must be a string, not {kind(address)}"
        )
    try:
        parsed = parse_address(address)
    except AddressError as error:
        raise SubmissionError("invalid_address", "/address", str(error)) from error
    return Submission(parsed.spelled, parsed.key, [], None)


def check_same_wallet(record: Mapping[str, Any], key: str, pointer: str = "") -> None:
    """SubmissionError `wallet_mismatch` where the record names another wallet than `key`."""
    for field, text in named_wallets(record).items():
        if text.lower() != key:
            raise SubmissionError(
                "wallet_mismatch",
                f"{pointer}/{field}",
                f"the wallet data is of {text[:64]!a}, the submission of {key}",
            )


def _questionnaire(value: Any) -> list[dict[str, str | None]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise SubmissionError(
            "wrong_type", "/questionnaire", f"questionnaire must be a list, not {kind(value)}"
        )
    if len(value) > MAX_QUESTIONS:
        raise SubmissionError(
            "too_many_questions",
            "/questionnaire",
            f"{len(value):,} questions; at most {MAX_QUESTIONS} are accepted",
        )
    return [_entry(entry, f"/questionnaire/{index}") for index, entry in enumerate(value)]


def _entry(entry: Any, pointer: str) -> dict[str, str | None]:
    if not isinstance(entry, dict):
        raise SubmissionError(
            "wrong_type",
            pointer,
            f"an entry must be an object with question and answer, not {kind(entry)}",
        )
    if "question" not in entry:
        raise SubmissionError("missing_field", f"{pointer}/question", "question is missing")
    question, answer = entry["question"], entry.get("answer")
    if not isinstance(question, str):
        raise SubmissionError(
            "wrong_type",
            f"{pointer}/question",
            f"question must be a string, not {kind(question)}",
        )
    if answer is not None and not isinstance(answer, str):
        raise SubmissionError(
            "wrong_type",
            f"{pointer}/answer",
            f"answer must be a string or null, not {kind(answer)}",
        )
    return {"question": question, "answer": answer}


def _evm_data(value: Any, key: str) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise SubmissionError(
            "wrong_type", "/evm_data", f"evm_data must be an object, not {kind(value)}"
        )
    check_same_wallet(value, key, "/evm_data")
    return value


def _hashed(submission: Submission, limits: JsonLimits) -> Submission:
    """With the data's hash; refused where it grew past the limit in being normalised.

    Numbers in exponent notation grow when written out, and the topics are sized for the limit.
    """
    head = {"address": submission.address, "questionnaire": submission.questionnaire}
    size = len(canonical_bytes(head))
    if submission.evm_data is not None:
        data = canonical_evm_bytes(submission.evm_data)
        size += len(data) + len(',"evm_data":')
        submission = replace(submission, evm_sha256=hashlib.sha256(data).hexdigest())
    if size > limits.max_bytes:
        raise SubmissionError(
            "too_large", "", f"{size:,} bytes when written out; at most {limits.max_bytes:,}"
        )
    return submission


def _unknown_fields(document: Mapping[str, Any]) -> list[Note]:
    notes = []
    for field in [name for name in document if name not in SUBMISSION_FIELDS][:MAX_NOTES]:
        close = difflib.get_close_matches(field[:64], SUBMISSION_FIELDS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        notes.append(Note(f"/{pointer_token(field)}", f"no such field, ignored{hint}"))
    return notes


def _address_missing(document: Mapping[str, Any]) -> str:
    if "wallet" in document:
        return (
            "address is missing; this looks like a bare wallet record, which belongs in evm_data "
            "beside an address (assay publish wraps it)"
        )
    return "address is missing"
