"""Dead letters read back: what the runtime writes, and what strangers may (SPEC X.4)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from assay.cli import dlq_replay_kafka
from assay.cli.dlq_memory_kafka import ReplayMemory, offsets_of, ranges
from assay.cli.dlq_outgoing import NotReplayable, Outgoing
from assay.cli.dlq_outgoing import outgoing as outgoing_of
from assay.cli.dlq_reader_kafka import DeadLetterReader
from assay.cli.dlq_replay_kafka import Replay
from assay.cli.dlq_shown import letter_json, letter_lines, plain
from assay.cli.main import build_app
from assay.dead_letters import DeadLetterView, LetterRecord, Place, read_dead_letter
from assay.envelope import Headers
from assay.errors import BrokerError
from assay.identity import identify
from assay_runtime.dead_letters import dead_letter
from assay_runtime.failures import DeadLetter
from assay_runtime.records import Record
from assay_runtime.retries import RetriedRecord, original

SUBMITTED = "wallet.event.submitted.v1"
DLQ = f"{SUBMITTED}.ingest.dlq"
OWN: Headers = (("ce_id", b"7"), ("ce_source", b"/p"), ("odd", b"\xff"), ("none", None))


def kept(
    value: bytes | None = b'{"address":1}',
    headers: Headers = OWN,
    *,
    topic: str = SUBMITTED,
    limit: int = 10_000,
    reason: DeadLetter | None = None,
) -> DeadLetterView:
    """A record, dead-lettered by the runtime and read back; the broker added a trace."""

    def check(message: object) -> None:
        if len(message.value or b"") > limit:
            raise DeadLetter("too large")

    record = Record(topic, 3, 41, 1_000, b"0xab", value, headers)
    reason = reason or DeadLetter("it is no address", code="schema", pointer="/address")
    message = dead_letter(record, reason, "ingest", check, attempts=2)
    place = Place(message.topic, 1, 9)
    stored = (*message.headers, ("traceparent", b"00-dlq"))
    return read_dead_letter(LetterRecord(place, 2_000, message.key, message.value, stored))


@pytest.mark.parametrize(
    "headers", [OWN, (), (("__connect.errors.topic", b"a publisher's"), ("assay.error.code", b"x"))]
)
def test_what_the_runtime_wrote_is_read_back(headers: Headers) -> None:
    """The record's own headers come back alone and whole, whatever they are named."""
    letter = kept(headers=headers, reason=DeadLetter("no", code="c", pointer="/p", request_id="r"))
    assert letter.headers == headers
    assert letter.origin == Place(SUBMITTED, 3, 41)
    assert (letter.service, letter.code, letter.reason) == ("ingest", "c", "no")
    assert (letter.pointer, letter.request_id, letter.attempts) == ("/p", "r", 2)
    assert letter.left_out_sha256 is None


@given(st.lists(st.tuples(st.text(max_size=30), st.none() | st.binary(max_size=30)), max_size=8))
def test_a_strangers_record_is_read_too(headers: list[tuple[str, bytes | None]]) -> None:
    """Whoever wrote it: it is counted and shown, and not replayed to nowhere."""
    record = LetterRecord(Place(DLQ, 0, 0), 0, None, None, tuple(headers))
    letter = read_dead_letter(record)
    assert letter.origin is None
    assert "\n".join(letter_lines(letter_json(letter, replayed=False, full=True)))


def test_a_line_cannot_steer_the_terminal() -> None:
    """A reason quotes what strangers sent."""
    assert plain("a\x1b[2Jb\r\n\u202e\U000e0001") == "a\\u001b[2Jb\\r\\n\\u202e\ufffd"
    letter = kept(b"\x1b]0;title\x07", reason=DeadLetter("saw \x1b[31m"))
    shown = "\n".join(letter_lines(letter_json(letter, replayed=True, full=True)))
    assert "\x1b" not in shown


def test_the_value_is_shown_on_demand_only() -> None:
    """It may hold personal data."""
    letter = kept(b"my name is")
    lines = "\n".join(letter_lines(letter_json(letter, replayed=False, full=False)))
    assert "my name is" not in lines
    assert hashlib.sha256(b"my name is").hexdigest() in lines
    assert "value" not in letter_json(letter, replayed=False, full=False)
    assert "my name is" in "\n".join(letter_lines(letter_json(letter, replayed=False, full=True)))


class Origins:
    """Stands in for the reader: what stands at the origins."""

    def __init__(self, record: LetterRecord | None) -> None:
        self.record = record

    async def at(self, place: Place) -> LetterRecord | None:
        return self.record


async def outgoing(letter: DeadLetterView, at_origin: LetterRecord | None = None) -> Outgoing:
    return await outgoing_of(letter, Origins(at_origin))


async def test_a_replay_is_the_record_as_it_was() -> None:
    letter = kept()
    sent = await outgoing(letter)
    assert (sent.topic, sent.partition, sent.key) == (SUBMITTED, 3, b"0xab")
    assert (sent.value, sent.headers) == (b'{"address":1}', OWN)


async def test_a_record_named_by_its_place_keeps_its_name() -> None:
    """X.2: sent to another offset of the input topic it would be another request, and replayed
    twice two of them; by the retry topic its service sees it at its first place."""
    letter = kept(headers=(("x", b"y"),))
    sent = await outgoing(letter)
    assert sent.topic == f"{SUBMITTED}.ingest.retry.1"
    stored = (*sent.headers, ("traceparent", b"00"))
    read = original(Record(sent.topic, 0, 99, 1, sent.key, sent.value, stored))
    assert isinstance(read, RetriedRecord)
    assert (read.topic, read.partition, read.offset, read.headers) == (
        SUBMITTED, 3, 41, (("x", b"y"),),
    )  # fmt: skip
    first, again = (
        identify(r[0], r[1], r[2], (("x", b"y"),), b"", tenant="t").request_id
        for r in ((SUBMITTED, 3, 41), (read.topic, read.partition, read.offset))
    )
    assert first == again


async def test_what_was_too_large_to_keep_is_fetched_from_its_origin() -> None:
    value = b"x" * 50
    letter = kept(value, limit=20)
    assert letter.left_out_bytes == 50
    whole = LetterRecord(Place(SUBMITTED, 3, 41), 0, b"0xab", value, OWN)
    sent = await outgoing(letter, whole)
    assert (sent.value, sent.headers) == (value, OWN)
    other = LetterRecord(whole.place, 0, b"0xab", b"another", OWN)
    with pytest.raises(NotReplayable, match="another record"):
        await outgoing(letter, other)
    with pytest.raises(NotReplayable, match="is gone"):
        await outgoing(letter, None)


class Silent:
    """Stands in for a producer whose broker went away: nothing is confirmed, not even the end."""

    def __init__(self, *, sends: bool) -> None:
        self._sends = sends

    async def start(self) -> None: ...

    async def stop(self) -> None:
        await asyncio.Event().wait()

    async def partitions_for(self, topic: str) -> set[int]:
        if not self._sends:
            await asyncio.Event().wait()
        return {0}

    async def send(self, topic: str, **_: object) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("sends", [True, False])
async def test_a_broker_that_goes_silent_ends_the_replay(
    monkeypatch: pytest.MonkeyPatch, sends: bool
) -> None:
    """An operator's command says so and ends; it used to wait for ever."""
    silent = Silent(sends=sends)
    monkeypatch.setattr(dlq_replay_kafka, "idempotent_producer", lambda _: silent)

    async def letters() -> AsyncIterator[DeadLetterView]:
        yield kept()

    async with asyncio.timeout(10):
        with pytest.raises(BrokerError, match="nowhere confirmed nothing"):
            async with Replay(
                "nowhere", Origins(None), ReplayMemory("nowhere"), deadline_s=0.05
            ) as replay:
                await replay.run(letters(), lambda *_: None)


async def test_what_came_from_elsewhere_is_not_sent_there() -> None:
    """A forged header must not make the operator's tool write where it points."""
    with pytest.raises(NotReplayable, match="does not know"):
        await outgoing(kept(topic="payments.orders"))


@given(st.sets(st.integers(0, 300)))
def test_offsets_survive_their_text(offsets: set[int]) -> None:
    assert offsets_of(ranges(offsets)) == offsets


@given(st.sets(st.integers(0, 10**6), max_size=60), st.integers(1, 80))
def test_the_highest_offsets_are_kept_where_room_is_short(offsets: set[int], limit: int) -> None:
    """The oldest dead letters are gone first."""
    text = ranges(offsets, limit)
    assert len(text) <= limit
    found = offsets_of(text)
    assert found <= offsets
    assert all(offset in found for offset in offsets if found and offset >= min(found))


@pytest.mark.parametrize("text", ["x", "1-", "-1", "1-2-3", "1,,a", "0-99999999999"])
def test_a_text_of_somebody_else_says_nothing(text: str) -> None:
    assert offsets_of(text) == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["show", DLQ, "0"],
        ["show", DLQ, "0", "1", "--request-id", "r"],
        ["show", SUBMITTED, "0", "1"],
        ["replay", SUBMITTED],
        ["replay", DLQ, "--offset", "3"],
        ["list", "--since", "yesterday"],
        ["list", "--topic", "payments"],
        ["list", "--service", "nobody"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    """Before anything is asked of a broker."""
    result = CliRunner().invoke(build_app(), ["dlq", *arguments, "--bootstrap", "127.0.0.1:1"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


def test_an_unknown_topic_is_answered_with_those_there_are() -> None:
    result = CliRunner().invoke(build_app(), ["dlq", "replay", SUBMITTED, "--bootstrap", "h:1"])
    assert DLQ in result.stderr


async def test_a_broker_without_dead_letter_topics_is_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`no dead letters` would be a healthy answer from the wrong cluster."""

    async def nothing(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(DeadLetterReader, "_partitions", nothing)
    reader = DeadLetterReader("h:1")
    with pytest.raises(BrokerError, match="h:1 has no dead-letter topic"):
        await reader.present([DLQ, "another"])
    with pytest.raises(BrokerError, match=f"h:1 has no topic {DLQ}"):
        await reader.present([DLQ])
    await reader._consumer.stop()


def test_no_broker_is_one_line_and_exit_code_1() -> None:
    result = CliRunner().invoke(build_app(), ["dlq", "list", "--bootstrap", "127.0.0.1:1"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "assay dlq list: no Kafka answers at 127.0.0.1:1\n"
