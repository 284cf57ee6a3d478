"""A pure function of one record is called record by record; spans of sampled traces are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import structlog

from assay.envelope import Message
from assay_runtime.dead_letters import DeadLetterLimit
from assay_runtime.failures import Pause, Stop
from assay_runtime.records import Delivery, Record, raw_decoder
from assay_runtime.stage import Stage, per_record


def stage(publisher: Any, function: Any, decode: Any = raw_decoder) -> Stage:
    return Stage(
        pipeline="p",
        service="svc",
        decode=decode,
        handler=per_record(function),
        publisher=publisher,
        limit=DeadLetterLimit(),
        pause_s=0.001,
    )


def forward(delivery: Delivery[Any]) -> Sequence[Message]:
    return [Message("out", b"k", delivery.value, ())]


async def test_an_event_is_handled_before_the_next_is_read(
    publisher: Any, make_record: Any
) -> None:
    """The memory of one event, not of a batch of them."""
    steps: list[str] = []

    def decode(record: Record) -> Delivery[Any]:
        steps.append(f"read {record.offset}")
        return raw_decoder(record)

    def handle(delivery: Delivery[Any]) -> Sequence[Message]:
        steps.append(f"handle {delivery.record.offset}")
        return forward(delivery)

    await stage(publisher, handle, decode).run([make_record(n) for n in range(2)])
    assert steps == ["read 0", "handle 0", "read 1", "handle 1"]
    assert publisher.calls == 1, "sent together all the same"


async def test_a_bug_is_isolated_and_an_outage_waited_out(publisher: Any, make_record: Any) -> None:
    """One dead letter, nothing lost, order kept."""
    pauses = 3

    def handle(delivery: Delivery[Any]) -> Sequence[Message]:
        nonlocal pauses
        if delivery.value == b"1":
            raise ZeroDivisionError
        if delivery.value == b"2" and pauses:
            pauses -= 1
            raise Pause("store", "away")
        return forward(delivery)

    await stage(publisher, handle).run([make_record(n) for n in range(4)])
    assert [(m.topic, m.value) for m in publisher.sent] == [
        ("out", b"0"), ("in.svc.dlq", b"1"), ("out", b"2"), ("out", b"3"),
    ]  # fmt: skip
    assert pauses == 0


async def test_stop_sends_nothing(publisher: Any, make_record: Any) -> None:
    def handle(delivery: Delivery[Any]) -> Sequence[Message]:
        if delivery.value == b"2":
            raise Stop("key gone")
        return forward(delivery)

    with pytest.raises(Stop, match="key gone"):
        await stage(publisher, handle).run([make_record(n) for n in range(4)])
    assert publisher.sent == []


async def test_a_span_is_logged_for_each_sampled_record(publisher: Any, make_record: Any) -> None:
    """Issue 6.7: who is sampled was decided where the trace began; a span names its parent."""

    def traced(offset: int, flags: str) -> Record:
        traceparent = f"00-{'a' * 32}-{offset + 1:016x}-{flags}".encode()
        headers = (*make_record(offset).headers, ("traceparent", traceparent))
        return make_record(offset, headers=headers)

    records = [traced(0, "00"), traced(1, "01"), traced(2, "00")]
    with structlog.testing.capture_logs() as logs:
        await stage(publisher, forward).run(records)
    [span] = [line for line in logs if line["event"] == "span"]
    assert (span["trace_id"], span["parent_id"]) == ("a" * 32, f"{2:016x}")
    assert (span["offset"], span["records"], span["request_id"]) == (1, 3, "request-1")
    assert span["span_id"] != span["parent_id"]
    assert span["duration_ms"] >= 0
