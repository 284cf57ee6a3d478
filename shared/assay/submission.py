"""A submission: the value of `wallet.event.submitted.v1` and the body of `POST /score`.

```
{
  "address":       "0x" + 40 hex digits; mixed case must be a valid EIP-55 checksum. Required.
  "questionnaire": [{"question": text, "answer": text or null}, …]. Optional.
  "evm_data":      the wallet record, an object. Optional: fetched when absent (SPEC S3.8).
}
```

A bare wallet record, as an aggregator returns it, names its wallet itself and has the record's
sections at the top; `submission_from_record` wraps one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.errors import AssayError

SUBMISSION_FIELDS = ("address", "questionnaire", "evm_data")
RECORD_SECTIONS = (
    "wallet_metadata", "defi_analysis", "lending_history", "tokens", "nfts", "eth_balance",
)  # fmt: skip
# Where a wallet record may say whose it is, in the order of trust.
WALLET_FIELDS = ("wallet", "address", "wallet_address")


class SubmissionError(AssayError):
    """A submission that cannot be accepted (SPEC X.4).

    `code` is for programs, `pointer` the JSON pointer (RFC 6901) of the field at fault, "" for
    the whole document; the message is for people and never carries more than a short excerpt.
    """

    def __init__(self, code: str, pointer: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer
        self.message = message


def named_wallets(record: Mapping[str, Any]) -> dict[str, str]:
    """The fields with which a record names its wallet, and what they say.

    Null, empty and non-string values name nobody.
    """
    found = {field: record.get(field) for field in WALLET_FIELDS}
    return {
        field: value.strip()
        for field, value in found.items()
        if isinstance(value, str) and value.strip()
    }


def submission_from_record(record: Any) -> dict[str, Any]:
    """The submission for a bare wallet record, or for one that is wrapped already.

    A bare record has at least one of RECORD_SECTIONS at its top, or nothing but its `wallet`; a
    questionnaire beside the sections is taken out of it. Nothing is checked here beyond what
    tells the two apart: ingest judges the submission. SubmissionError where neither is found.
    """
    if not isinstance(record, dict):
        raise SubmissionError("not_an_object", "", "a wallet record is a JSON object")
    bare = any(section in record for section in RECORD_SECTIONS)
    if bare and "evm_data" in record:
        raise SubmissionError(
            "ambiguous_record",
            "/evm_data",
            "wallet data stands both at the top and in evm_data; keep one of them",
        )
    if not bare and "address" in record:
        return {field: record[field] for field in SUBMISSION_FIELDS if field in record}
    named = named_wallets(record)
    if not named:
        raise SubmissionError(
            "missing_field",
            "/wallet" if bare else "/address",
            "the record does not say whose wallet it is: neither wallet nor address is set",
        )
    submission: dict[str, Any] = {"address": next(iter(named.values()))}
    evm_data = dict(record)
    if "questionnaire" in evm_data:
        submission["questionnaire"] = evm_data.pop("questionnaire")
    submission["evm_data"] = evm_data
    return submission
