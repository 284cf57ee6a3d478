"""Stage: what becomes of each record under every thing a handler may say (DESIGN §3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY

from assay.envelope import Message
from assay_runtime.dead_letters import DeadLetterLimit
from assay_runtime.failures import DeadLetter, Pause, Stop
from assay_runtime.records import Delivery, Record, raw_decoder
from assay_runtime.stage import Handler, Outcome, Stage, per_record


def out(value: bytes, topic: str = "out") -> Message:
    return Message(topic, b"k", value, ())


def stage(publisher: Any, handler: Handler, **changes: Any) -> Stage:
    known = {
        "pipeline": "p",
        "service": "svc",
        "decode": raw_decoder,
        "handler": handler,
        "publisher": publisher,
        "limit": DeadLetterLimit(),
        "pause_s": 0.001,
    }
    return Stage(**{**known, **changes})


def values(publisher: Any, topic: str = "out") -> list[bytes | None]:
    return [message.value for message in publisher.sent if message.topic == topic]


def codes(publisher: Any) -> list[bytes]:
    return [
        dict(message.headers)["assay.error.code"]
        for message in publisher.sent
        if message.topic == "in.svc.dlq"
    ]


async def test_outputs_keep_the_order_of_records(publisher: Any, make_record: Any) -> None:
    """Order per key is the order of sends: records in turn, each record's messages in turn."""

    def two(delivery: Delivery[Any]) -> Sequence[Message]:
        return [out(delivery.value + b"a"), out(delivery.value + b"b")]

    await stage(publisher, per_record(two)).run([make_record(n) for n in range(3)])
    assert values(publisher) == [b"0a", b"0b", b"1a", b"1b", b"2a", b"2b"]
    assert publisher.calls == 1


async def test_each_reason_is_a_dead_letter_of_its_own(publisher: Any, make_record: Any) -> None:
    """Decoder, handler and size refuse one record each; the others pass, order kept."""

    def decode(record: Record) -> Delivery[Any]:
        if record.value == b"1":
            raise DeadLetter("no event", code="envelope")
        if record.value == b"5":
            raise RecursionError("a decoder's bug")
        return raw_decoder(record)

    def handle(delivery: Delivery[Any]) -> Sequence[Message]:
        if delivery.value == b"2":
            raise DeadLetter("never", code="refused", pointer="/a")
        if delivery.value == b"3":
            return [out(b"small"), out(b"x" * 200_000)]
        return [out(delivery.value)]

    await stage(publisher, per_record(handle), decode=decode).run(
        [make_record(n) for n in range(7)]
    )
    assert values(publisher) == [b"0", b"4", b"6"]
    assert values(publisher, "in.svc.dlq") == [b"1", b"2", b"3", b"5"]
    assert codes(publisher) == [b"envelope", b"refused", b"output_too_large", b"decoder_failed"]


async def test_a_record_with_one_output_too_large_is_not_half_published(
    publisher: Any, make_record: Any
) -> None:
    """All outputs of a record, or its dead letter."""

    async def handle(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        return [[out(b"first"), out(b"x" * 200_000)] for _ in deliveries]

    await stage(publisher, handle).run([make_record()])
    assert [message.topic for message in publisher.sent] == ["in.svc.dlq"]


async def test_a_bug_is_isolated_to_its_record(publisher: Any, make_record: Any) -> None:
    """The batch is tried one by one; the culprit is tried three times, then dead-lettered."""
    calls: list[list[bytes]] = []

    async def handle(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        calls.append([d.value for d in deliveries])
        if any(d.value == b"1" for d in deliveries):
            raise KeyError("bug")
        return [[out(d.value)] for d in deliveries]

    await stage(publisher, handle).run([make_record(n) for n in range(3)])
    assert values(publisher) == [b"0", b"2"]
    assert codes(publisher) == [b"handler_failed"]
    assert calls == [[b"0", b"1", b"2"], [b"0"], [b"1"], [b"1"], [b"1"], [b"2"]]


@pytest.mark.parametrize("given", [0, 1, 3])
async def test_a_wrong_number_of_outcomes_is_a_bug(
    publisher: Any, make_record: Any, given: int
) -> None:
    """Outcomes belong to records by place; one too few or too many would shift them."""

    async def handle(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        if len(deliveries) == 1:
            return [[out(deliveries[0].value)]]
        return [[out(b"wrong")]] * given

    await stage(publisher, handle).run([make_record(n) for n in range(2)])
    assert values(publisher) == [b"0", b"1"]


async def test_pause_waits_in_place(publisher: Any, make_record: Any) -> None:
    """An outage is not the record's failure: no dead letter, readiness off, then everything."""
    told: list[str | None] = []
    tries = 0

    async def handle(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        nonlocal tries
        tries += 1
        if tries < 4:
            assert _paused("ledger") in (None, 0.0) or tries > 1
            raise Pause("ledger", f"gone {tries}")
        assert _paused("ledger") == 1.0
        return [[out(d.value)] for d in deliveries]

    await stage(publisher, handle, on_pause=told.append).run([make_record(n) for n in range(2)])
    assert values(publisher) == [b"0", b"1"]
    assert told == ["ledger: gone 1", "ledger: gone 2", "ledger: gone 3", None]
    assert _paused("ledger") == 0.0


def _paused(what: str) -> float | None:
    return REGISTRY.get_sample_value("assay_paused", {"pipeline": "p", "what": what})


async def test_readiness_returns_when_the_last_waiter_resumes(
    publisher: Any, make_record: Any
) -> None:
    """Lanes wait side by side; one that is over must not hide the others' outage."""
    told: list[str | None] = []
    open_gates = {b"0": asyncio.Event(), b"1": asyncio.Event()}

    async def handle(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        if not open_gates[deliveries[0].value].is_set():
            raise Pause("model", "away")
        return [()]

    stage_ = stage(publisher, handle, on_pause=told.append)
    runs = [asyncio.create_task(stage_.run([make_record(n)])) for n in range(2)]
    await asyncio.sleep(0.01)
    open_gates[b"0"].set()
    await runs[0]
    assert None not in told
    assert _paused("model") == 1.0
    open_gates[b"1"].set()
    await runs[1]
    assert told[-1] is None
    assert _paused("model") == 0.0


async def test_one_outage_after_another_leaves_no_gauge_behind(
    publisher: Any, make_record: Any
) -> None:
    """Waiting for the store, then for the broker: each gauge goes back to 0."""
    missing = ["store", "key"]

    async def handle(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        if missing:
            raise Pause(missing.pop(0), "away")
        return [()]

    await stage(publisher, handle).run([make_record()])
    assert _paused("store") == _paused("key") == 0.0


async def test_cancelled_while_paused_is_undone_and_forgotten(
    publisher: Any, make_record: Any
) -> None:
    """A rebalance during an outage: nothing is sent, the gauge is not left at 1."""

    async def handle(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        raise Pause("disk", "full")

    run = asyncio.create_task(stage(publisher, handle).run([make_record()]))
    await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert publisher.sent == []
    assert _paused("disk") == 0.0


@pytest.mark.parametrize("count", [1, 3])
async def test_stop_ends(publisher: Any, make_record: Any, count: int) -> None:
    """Nothing is sent, nothing is tried again."""
    tries = 0

    async def handle(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        nonlocal tries
        tries += 1
        raise Stop("the key is gone")

    with pytest.raises(Stop, match="the key is gone"):
        await stage(publisher, handle).run([make_record(n) for n in range(count)])
    assert tries == 1
    assert publisher.sent == []


async def test_a_dead_letter_too_large_keeps_the_digest(publisher: Any, make_record: Any) -> None:
    """A record that was compressed far below the broker's limit must not block its partition."""
    import hashlib

    bomb = b"0" * 200_000

    def refuse(delivery: Delivery[Any]) -> Sequence[Message]:
        raise DeadLetter("too deep")

    await stage(publisher, per_record(refuse)).run([make_record(7, value=bomb)])
    (message,) = publisher.sent
    headers = dict(message.headers)
    assert message.value == b""
    assert headers["assay.error.value.bytes"] == b"200000"
    assert headers["assay.error.value.sha256"] == hashlib.sha256(bomb).hexdigest().encode()
    assert headers["__connect.errors.offset"] == b"7"
    assert headers["ce_id"] == b"id-7"


def refuse(delivery: Delivery[Any]) -> Sequence[Message]:
    raise DeadLetter("never", code="refused")


def dead_lettered(topic: str = "in") -> float:
    labels = {"pipeline": "p", "topic": topic, "code": "refused"}
    return REGISTRY.get_sample_value("assay_records_dead_lettered_total", labels) or 0.0


async def test_above_the_limit_nothing_of_the_batch_is_sent(
    publisher: Any, make_record: Any
) -> None:
    """A bad deploy that is restarted again and again does not fill the dead-letter topic: each
    start is a limit that has seen nothing yet. Neither log nor count claims what was not sent."""
    before = dead_lettered()
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            limit = DeadLetterLimit(0.5, window=10)
            with pytest.raises(Stop, match="6 of the last 6"):
                await stage(publisher, per_record(refuse), limit=limit).run(
                    [make_record(n) for n in range(20)]
                )
    assert publisher.sent == []
    assert [line["event"] for line in logs] == []
    assert dead_lettered() == before


async def test_what_is_dead_lettered_is_counted_and_logged_once_it_is_sent(
    publisher: Any, make_record: Any
) -> None:
    """X.4: one line each, with the place, the code, the reason and whose request it was."""
    before = dead_lettered()
    seen: list[int] = []
    send = publisher.send

    async def sending(outgoing: Any) -> Any:
        seen.append(len(logs))
        return await send(outgoing)

    publisher.send = sending
    with structlog.testing.capture_logs() as logs:
        await stage(publisher, per_record(refuse)).run([make_record(n) for n in range(2)])
    assert seen == [0]
    told = [(line["event"], line["offset"], line["code"], line["request_id"])
            for line in logs if line["event"] != "span"]  # fmt: skip
    assert told == [
        ("record_dead_lettered", 0, "refused", "request-0"),
        ("record_dead_lettered", 1, "refused", "request-1"),
    ]
    assert dead_lettered() == before + 2


@pytest.mark.parametrize("fault", ["too large", "refused", "a bug"])
async def test_a_dead_letter_names_the_request_whatever_failed(
    publisher: Any, make_record: Any, fault: str
) -> None:
    """Who asked is told, and by the runtime's word: a public record's own headers are anyone's."""
    headers = (("ce_requestid", b"another's"), ("assay.request.id", b"another's"))

    def decode(record: Record) -> Delivery[Any]:
        found = raw_decoder(record)
        return found._replace(attributes=found.attributes._replace(request_id="worked-out"))

    def fail(delivery: Delivery[Any]) -> Sequence[Message]:
        if fault == "too large":
            return [out(b"x" * 200_000)]
        raise DeadLetter("never") if fault == "refused" else KeyError("bug")

    reading = stage(publisher, per_record(fail), decode=decode)
    await reading.run([make_record(headers=headers)])
    [message] = publisher.sent
    assert dict(message.headers)["assay.request.id"] == b"worked-out"


async def test_a_sink_keeps_no_dead_letters(publisher: Any, make_record: Any) -> None:
    """Pipeline.keeps_dead_letters False: counted and logged as what it is, not published."""
    before = dead_lettered()
    with structlog.testing.capture_logs() as logs:
        await stage(publisher, per_record(refuse), keeps_dead_letters=False).run([make_record()])
    assert publisher.sent == []
    assert [line["event"] for line in logs if line["event"] != "span"] == ["record_passed_over"]
    assert dead_lettered() == before + 1


@pytest.mark.parametrize("fault", ["decoder", "handler"])
async def test_a_sink_that_is_to_lose_nothing_stops(
    publisher: Any, make_record: Any, fault: str
) -> None:
    """Issue 6: a fault that nobody foresaw is no reason to commit past a record."""

    def fail(anything: Any) -> Any:
        raise RuntimeError("broken")

    decode = fail if fault == "decoder" else raw_decoder
    sink = stage(
        publisher, per_record(fail), decode=decode, keeps_dead_letters=False, loses_nothing=True
    )
    with pytest.raises(Stop, match="in/3/7 cannot be kept"):
        await sink.run([make_record(7)])


@pytest.mark.parametrize("fault", ["decoder", "handler"])
async def test_it_stops_before_it_keeps_what_comes_behind(
    publisher: Any, make_record: Any, fault: str
) -> None:
    """With them it would store an offset beyond the record that it has not kept."""
    kept: list[int] = []

    def decode(record: Record) -> Delivery[Any]:
        if fault == "decoder" and record.offset == 7:
            raise RuntimeError("broken")
        return raw_decoder(record)

    async def keep(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        if fault == "handler" and 7 in (offsets := [d.record.offset for d in deliveries]):
            raise RuntimeError(f"broken: {offsets}")
        kept.extend(delivery.record.offset for delivery in deliveries)
        return [()] * len(deliveries)

    sink = stage(publisher, keep, decode=decode, keeps_dead_letters=False, loses_nothing=True)
    with pytest.raises(Stop, match="in/3/7 cannot be kept"):
        await sink.run([make_record(n) for n in (6, 7, 8)])
    assert 8 not in kept


async def test_what_a_lane_logs_names_request_and_trace(publisher: Any, make_record: Any) -> None:
    """Issue item 4: request id and trace id in what a handler logs."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    seen: list[dict[str, Any]] = []

    async def handle(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        seen.append(dict(structlog.contextvars.get_contextvars()))
        return [()]

    record = make_record(1)
    record = make_record(1, headers=(*record.headers, ("traceparent", trace.encode())))
    await stage(publisher, handle).run([record])
    assert seen[0]["request_id"] == "request-1"
    assert seen[0]["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert "request_id" not in structlog.contextvars.get_contextvars()
