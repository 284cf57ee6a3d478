"""Dead letters keep the record as it was (DESIGN §3); the limit stops a bad deploy."""

from __future__ import annotations

from typing import Any

import pytest

from assay_runtime.dead_letters import DeadLetterLimit, dead_letter
from assay_runtime.failures import DeadLetter, Stop


def test_bytes_and_headers_survive(make_record: Any) -> None:
    """Raw bytes, headers that are no UTF-8, repeated and null ones, in their order."""
    headers = (("a", b"\xff\xfe"), ("a", b""), ("b", None), ("ce_id", b"x"))
    record = make_record(9, value=b"\x00\xff", key=b"\xfe", headers=headers)
    message = dead_letter(record, DeadLetter("no", code="c", pointer="/p", request_id="r"), "svc")
    assert message.topic == "in.svc.dlq"
    assert (message.key, message.value) == (b"\xfe", b"\x00\xff")
    assert message.headers[:4] == headers
    added = dict(message.headers[4:])
    assert added["__connect.errors.topic"] == b"in"
    assert added["__connect.errors.partition"] == b"3"
    assert added["__connect.errors.offset"] == b"9"
    assert added["__connect.errors.connector.name"] == b"svc"
    assert added["__connect.errors.stage"] == b"TASK_PUT"
    assert added["__connect.errors.exception.class.name"] == b"DeadLetter"
    assert added["__connect.errors.exception.message"] == b"no"
    assert added["assay.error.code"] == b"c"
    assert added["assay.error.pointer"] == b"/p"
    assert added["assay.request.id"] == b"r"


def test_the_cause_is_named(make_record: Any) -> None:
    """Kafka Connect tells a conversion from the task; so does this."""
    reason = DeadLetter("not JSON")
    reason.__cause__ = ValueError("x")
    added = dict(dead_letter(make_record(), reason, "svc").headers)
    assert added["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert added["__connect.errors.exception.class.name"] == b"ValueError"


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [(b"k", None, (b"k", None)), (None, b"v", (None, b"v")), (b"", b"", (b"", b"")),
     (None, None, (None, b""))],
)  # fmt: skip
def test_null_and_empty_stay_apart(make_record: Any, key: Any, value: Any, kept: Any) -> None:
    """A tombstone is not an empty value; only null under null cannot be sent again."""
    message = dead_letter(make_record(key=key, value=value), DeadLetter("no"), "svc")
    assert (message.key, message.value) == kept


def test_long_and_odd_reasons_fit_a_header(make_record: Any) -> None:
    """Lone surrogates and a megabyte of pointer are cut and replaced, not fatal."""
    reason = DeadLetter("\ud800" * 5_000, pointer="/x" * 10_000, request_id="r" * 10_000)
    message = dead_letter(make_record(), reason, "svc")
    assert sum(len(value or b"") for _, value in message.headers) < 8_000


def test_oversized_headers_go_last(make_record: Any) -> None:
    """Only where headers alone are too large is the record reduced to its coordinates."""

    def check(message: Any) -> None:
        if sum(len(v or b"") for _, v in message.headers) > 2_000:
            raise DeadLetter("too large")

    record = make_record(4, headers=(("h", b"x" * 5_000),), value=b"v")
    message = dead_letter(record, DeadLetter("no"), "svc", check)
    added = dict(message.headers)
    assert "h" not in added
    assert added["__connect.errors.offset"] == b"4"


def test_limit_looks_at_the_last_records_only() -> None:
    """More than the ratio within the window stops; an old burst is forgotten."""
    limit = DeadLetterLimit(0.5, window=4)
    for dead in (True, True, False, False, False, False, True, True):
        limit.note(dead)
    with pytest.raises(Stop, match="3 of the last 4"):
        limit.note(dead=True)


def test_limit_can_be_off_and_waits_for_a_full_window() -> None:
    """A public topic's rubbish is its publishers'; three bad records are no rate."""
    off = DeadLetterLimit(None, window=2)
    early = DeadLetterLimit(0.5, window=200)
    for _ in range(100):
        off.note(dead=True)
        early.note(dead=True)
