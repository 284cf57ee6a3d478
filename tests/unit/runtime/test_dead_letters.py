"""Dead letters keep the record as it was (DESIGN §3); the limit stops a bad deploy."""

from __future__ import annotations

from typing import Any

import pytest

from assay_runtime.dead_letters import DeadLetterLimit, dead_letter
from assay_runtime.failures import DeadLetter, Stop
from assay_runtime.settings import Settings, SettingsError, load


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


def judge(limit: DeadLetterLimit, make_record: Any, outcomes: str) -> None:
    """A record per letter: `+` handled, any other a dead letter of that code."""
    for number, outcome in enumerate(outcomes):
        if outcome == "+":
            limit.handled()
        else:
            limit.dead(make_record(number), DeadLetter("no", code=outcome))


def test_limit_looks_at_the_last_records_only(make_record: Any) -> None:
    """More than the ratio within the window stops; an old burst is forgotten."""
    limit = DeadLetterLimit(0.5, window=4)
    judge(limit, make_record, "xx++++xx")
    with pytest.raises(Stop, match="3 of the last 4"):
        judge(limit, make_record, "x")


def test_limit_does_not_wait_for_a_full_window(make_record: Any) -> None:
    """What will be too many when it is full is too many now: each start would bury them else."""
    limit = DeadLetterLimit(0.5, window=200)
    judge(limit, make_record, "x" * 100)
    with pytest.raises(Stop, match="101 of the last 101"):
        judge(limit, make_record, "x")


@pytest.mark.parametrize("ratio", [None, 0, 0.0])
def test_limit_can_be_off(make_record: Any, ratio: float | None) -> None:
    """A public topic's rubbish is its publishers'; and an operator may want to go on."""
    judge(DeadLetterLimit(ratio, window=2), make_record, "x" * 100)


def test_limit_is_as_configured(make_record: Any) -> None:
    """Issue 6 item 3: settings ease it, and a pipeline that has none gets none by them."""
    settings = load(
        Settings,
        {"ASSAY_KAFKA__DEAD_LETTER_RATIO": "0.25", "ASSAY_KAFKA__DEAD_LETTER_WINDOW": "8"},
    )
    judge(DeadLetterLimit.of(settings.kafka, on=False), make_record, "x" * 100)
    limit = DeadLetterLimit.of(settings.kafka, on=True)
    judge(limit, make_record, "x++++++xx++++++xx")
    with pytest.raises(Stop, match="3 of the last 8"):
        judge(limit, make_record, "x")


@pytest.mark.parametrize("value", ["1", "-0.1", "half"])
def test_a_ratio_that_would_never_act_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="DEAD_LETTER_RATIO"):
        load(Settings, {"ASSAY_KAFKA__DEAD_LETTER_RATIO": value})


def test_limit_says_where_why_and_what_to_do(make_record: Any) -> None:
    """Issue 6 item 3: whoever reads the last line of the log can go on; it fits a terminal's."""
    limit = DeadLetterLimit(0.5, window=200)
    topic = "wallet.score.validated.v1"

    def dead(number: int) -> None:
        record = make_record(40 + number, topic=topic, partition=number % 2)
        if number % 3:
            reason = DeadLetter(
                "CloudEvents headers missing:\nce_id, " + "x" * 500, code="envelope"
            )
        else:
            reason = DeadLetter("short", code="schema")
        limit.dead(record, reason)

    with pytest.raises(Stop) as stopped:
        any(map(dead, range(200)))
    said = str(stopped.value)
    assert said.startswith(
        f"101 of the last 101 records could not be handled ({topic}/0 offsets 40 to 140, "
        f"{topic}/1 offsets 41 to 139), 67 of them as envelope: CloudEvents headers missing: ce_id"
    )
    assert "set ASSAY_KAFKA__DEAD_LETTER_RATIO=0" in said
    assert "\n" not in said
    assert len(said) <= 500
