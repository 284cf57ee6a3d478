"""Postponed records keep what they were and go through the tiers once (DESIGN §3, SPEC X.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import REGISTRY

from assay_runtime.dead_letters import DeadLetterLimit
from assay_runtime.failures import DeadLetter, RetryLater
from assay_runtime.records import Delivery, Record, raw_decoder
from assay_runtime.retries import (
    RetriedRecord,
    Retries,
    not_before_s,
    original,
    retried_only,
    retry_topics,
)
from assay_runtime.settings import SettingsError
from assay_runtime.stage import Outcome, Stage

NOW = 1_700_000_000.0


def again(record: Record, message: Any, *, offset: int = 77) -> Record:
    """The record as it is read from the topic the message went to; the broker adds a trace."""
    headers = (*message.headers, ("traceparent", b"00-x"))
    return Record(message.topic, 1, offset, 99, message.key, message.value, headers)


def retries(delays_s: Sequence[float] = (10, 60), tiers: int = 3) -> Retries:
    return Retries("svc", tiers, delays_s, clock=lambda: NOW)


@pytest.mark.parametrize(
    "headers",
    [
        (("a", b"\xff"), ("a", None), ("traceparent", b"00-origin")),
        (),
        # A publisher may write ours; only what stands behind its headers is believed.
        (("assay.retry.topic", b"elsewhere"), ("assay.retry.attempt", b"9"), ("x", b"y")),
    ],
)
def test_the_origin_comes_back_whole(make_record: Any, headers: Any) -> None:
    """Ids made of the position, and accepted_at of the time, must not change by a retry."""
    record = make_record(9, headers=headers, key=b"\xfe", value=b"\x00\xff")
    message = retries().postponed(record, RetryLater("away", code="c"))
    assert message is not None
    assert message.topic == "in.svc.retry.1"
    found = original(again(record, message))
    assert isinstance(found, RetriedRecord)
    for name in ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"):
        assert getattr(found, name) == getattr(record, name), name
    assert found.attempt == 1


def test_each_wait_has_its_tier_and_then_there_is_none(make_record: Any) -> None:
    """The second time it goes to the second tier, with the origin's place and not the first
    tier's; after the last it is not postponed."""
    record = make_record(9)
    reason = RetryLater("away", code="c")
    first = retries().postponed(record, reason)
    assert first is not None
    assert not_before_s(first.headers) == NOW + 10
    second = retries().postponed(original(again(record, first)), reason)
    assert second is not None
    assert second.topic == "in.svc.retry.2"
    assert not_before_s(second.headers) == NOW + 60
    assert dict(second.headers)["assay.retry.offset"] == b"9"
    assert [name for name, _ in second.headers].count("assay.retry.topic") == 1
    assert retries().postponed(original(again(record, second)), reason) is None
    assert retries(()).postponed(record, reason) is None


@pytest.mark.parametrize(
    "spoilt",
    [
        {"assay.retry.topic": b"other"},
        {"assay.retry.offset": b"nine"},
        {"assay.retry.attempt": b"0"},
    ],
)
def test_what_names_no_origin_is_a_dead_letter(make_record: Any, spoilt: dict[str, bytes]) -> None:
    """Rubbish on a retry topic must not be taken for a record of another place."""
    record = make_record(9)
    message = retries().postponed(record, RetryLater("away"))
    assert message is not None
    headers = [(name, spoilt.get(name, value)) for name, value in message.headers]
    read = Record(message.topic, 1, 7, 99, message.key, message.value, tuple(headers))
    assert original(read) is read
    with pytest.raises(DeadLetter, match="without its origin"):
        retried_only(raw_decoder)(original(read))


def test_a_time_that_is_no_number_is_due() -> None:
    assert not_before_s((("assay.retry.not-before", b"soon"),)) == 0
    assert not_before_s(()) == 0
    assert not_before_s((("assay.retry.not-before", b"9" * 400),)) == 0


@pytest.mark.parametrize("delays_s", [(1, 2, 3, 4), (-1,), (float("inf"),), (float("nan"),)])
def test_waits_that_cannot_be_are_refused(delays_s: Sequence[float]) -> None:
    with pytest.raises(SettingsError, match="RETRY_DELAYS_S"):
        retries(delays_s)


def test_a_service_reads_the_tiers_it_writes() -> None:
    names = retry_topics(["a", "b"], "svc", 2)
    assert names == ("a.svc.retry.1", "b.svc.retry.1", "a.svc.retry.2", "b.svc.retry.2")


def stage(publisher: Any, outcome: Outcome, **changes: Any) -> Stage:
    async def handler(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        return [outcome for _ in deliveries]

    known = {
        "pipeline": "p", "service": "svc", "decode": raw_decoder, "handler": handler,
        "publisher": publisher, "limit": DeadLetterLimit(), "retries": retries(),
    }  # fmt: skip
    return Stage(**{**known, **changes})


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_a_postponed_record_is_counted_and_is_no_dead_letter(
    publisher: Any, make_record: Any
) -> None:
    """Above the dead-letter limit nothing would be sent; a record tried later is not judged."""
    labels = {"pipeline": "p", "topic": "in.svc.retry.1", "code": "away"}
    before = counted("assay_records_postponed_total", **labels)
    limit = DeadLetterLimit(0.5, window=2)
    reason = RetryLater("no answer", code="away")
    await stage(publisher, reason, limit=limit).run([make_record(n) for n in range(5)])
    assert [message.topic for message in publisher.sent] == ["in.svc.retry.1"] * 5
    assert [message.value for message in publisher.sent] == [b"0", b"1", b"2", b"3", b"4"]
    assert counted("assay_records_postponed_total", **labels) == before + 5


async def test_the_last_tier_ends_in_a_dead_letter_of_the_origin(
    publisher: Any, make_record: Any
) -> None:
    """X.4: with the origin's coordinates and headers, the code, and how often it was tried."""
    record = make_record(9)
    reason = RetryLater("no answer", code="away", request_id="r")
    for _ in range(2):
        read = again(record, publisher.sent[-1]) if publisher.sent else record
        unwrap = original if publisher.sent else None
        await stage(publisher, reason, unwrap=unwrap).run([read])
    assert [message.topic for message in publisher.sent] == ["in.svc.retry.1", "in.svc.retry.2"]
    await stage(publisher, reason, unwrap=original).run([again(record, publisher.sent[-1])])
    buried = publisher.sent[-1]
    assert buried.topic == "in.svc.dlq"
    assert buried.headers[: len(record.headers)] == record.headers
    added = dict(buried.headers[len(record.headers) :])
    assert added["__connect.errors.topic"] == b"in"
    assert (added["__connect.errors.partition"], added["__connect.errors.offset"]) == (b"3", b"9")
    assert added["assay.error.code"] == b"away"
    assert added["assay.error.attempts"] == b"3"
    assert "assay.retry.topic" not in added


async def test_without_retries_it_is_a_dead_letter_at_once(
    publisher: Any, make_record: Any
) -> None:
    await stage(publisher, RetryLater("no", code="away"), retries=None).run([make_record()])
    assert [message.topic for message in publisher.sent] == ["in.svc.dlq"]


async def test_a_record_too_large_for_its_tier_is_kept_instead(
    publisher: Any, make_record: Any
) -> None:
    """It lies in the dead-letter topic without its value, and still stands at its offset."""
    record = make_record(4, value=b"v" * 99_990)
    await stage(publisher, RetryLater("no", code="away")).run([record])
    assert [(message.topic, message.value) for message in publisher.sent] == [("in.svc.dlq", b"")]


async def test_the_stranger_on_a_retry_topic_goes_to_the_origins_dead_letters(
    publisher: Any, make_record: Any
) -> None:
    """There is no dead-letter topic of a retry topic."""
    strange = make_record(topic="in.svc.retry.2")
    decode = retried_only(raw_decoder)
    await stage(publisher, [], unwrap=original, decode=decode).run([strange])
    (buried,) = publisher.sent
    assert buried.topic == "in.svc.dlq"
    assert dict(buried.headers)["assay.error.code"] == b"retry_headers"
    assert dict(buried.headers)["__connect.errors.topic"] == b"in.svc.retry.2"
