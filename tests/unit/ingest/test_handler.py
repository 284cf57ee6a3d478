"""Submitted to accepted, record by record (SPEC S3.8, X.2, X.4)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from assay.envelope import Message
from assay.ids import event_id, request_id, request_id_from_position
from assay_runtime.failures import DeadLetter, RetryLater
from assay_runtime.records import Record
from assay_runtime.stage import Outcome
from services.ingest.adapters.aggregator_http import (
    AggregatorRefused,
    AggregatorRubbish,
    AggregatorTimeout,
    AggregatorUnavailable,
    WalletUnknown,
    _Transient,
)
from services.ingest.domain.fingerprint import evm_sha256
from services.ingest.domain.strict_json import JsonLimits
from services.ingest.handler import IngestHandler, submission_decoder
from services.ingest.store import Ending, RequestStore

ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
SUBMITTED = "wallet.event.submitted.v1"
HEADERS = (("ce_id", b"order-1"), ("ce_source", b"/shop"))
REQUEST = request_id("default", "/shop", "order-1")


class _Aggregator:
    """Gives a new record at every call, as a chain that moves on does."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.calls = 0
        self.failure = failure

    async def fetch(self, address: str) -> dict[str, Any]:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return {"wallet": address, "block": self.calls}


class _MeetingAggregator(_Aggregator):
    """Answers two callers at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self._met = asyncio.Event()

    async def fetch(self, address: str) -> dict[str, Any]:
        record = await super().fetch(address)
        if self.calls == 2:
            self._met.set()
        await asyncio.wait_for(self._met.wait(), 5)
        return record


def _record(
    document: Any, headers: tuple[tuple[str, bytes], ...] = HEADERS, offset: int = 3
) -> Record:
    value = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Record(SUBMITTED, 1, offset, 1_790_000_000_000, None, value, headers)


async def _handled(handler: IngestHandler, *records: Record) -> Sequence[Outcome]:
    decode = submission_decoder("default", "log-1")
    return await handler([decode(record) for record in records])


def _handler(store: RequestStore, aggregator: _Aggregator | None = None) -> IngestHandler:
    return IngestHandler(store, aggregator, JsonLimits(), "default")


async def _accepted(handler: IngestHandler, record: Record) -> Message:
    [outcome] = await _handled(handler, record)
    assert not isinstance(outcome, DeadLetter), outcome
    [message] = outcome
    return message


async def _refused(handler: IngestHandler, record: Record) -> DeadLetter:
    [outcome] = await _handled(handler, record)
    assert isinstance(outcome, DeadLetter)
    return outcome


async def test_an_accepted_event_says_where_it_comes_from(store: RequestStore) -> None:
    """DESIGN §2, S3.8: meta, the caller's spelling, the data with its hash and source, the key in
    lower case, an id that follows from the parent and the bytes."""
    evm_data = {"wallet": ADDRESS, "wallet_metadata": {"total_transactions": 3}}
    record = _record({"address": ADDRESS, "evm_data": evm_data})
    message = await _accepted(_handler(store), record)
    event = json.loads(message.value)
    assert message.topic == "wallet.event.accepted.v1"
    assert message.key == ADDRESS.lower().encode()
    assert (event["address"], event["evm_data"], event["questionnaire"]) == (ADDRESS, evm_data, [])
    assert (event["evm_source"], event["evm_sha256"]) == ("inline", evm_sha256(evm_data))
    meta = event["meta"]
    assert (meta["request_id"], meta["tenant_id"], meta["wallet"]) == (
        REQUEST, "default", ADDRESS.lower(),
    )  # fmt: skip
    assert (meta["accepted_at_ms"], meta["causation_id"]) == (1_790_000_000_000, "order-1")
    assert message.id == event_id("order-1", message.topic, message.value)


async def test_a_repeat_gets_the_same_bytes(store: RequestStore) -> None:
    """X.2, DESIGN §2: the aggregator is asked once, whatever it would say the second time."""
    aggregator = _Aggregator()
    handler = _handler(store, aggregator)
    first = await _accepted(handler, _record({"address": ADDRESS}))
    again = await _accepted(handler, _record({"address": ADDRESS}, offset=9))
    other_replica = await _accepted(_handler(store, aggregator), _record({"address": ADDRESS}))
    assert first.value == again.value == other_replica.value
    assert first.id == again.id == other_replica.id
    assert aggregator.calls == 1


@pytest.mark.parametrize("status", ["signed", "rejected"])
async def test_a_repeat_of_an_ended_request_publishes_nothing(
    store: RequestStore, status: Any
) -> None:
    """X.2: it must reach neither the aggregator nor the model again; other content is told."""
    aggregator = _Aggregator()
    handler = _handler(store, aggregator)
    await _accepted(handler, _record({"address": ADDRESS}))
    await store.conclude([Ending(REQUEST, status, b"{}")], 1)
    assert await _handled(handler, _record({"address": ADDRESS})) == [()]
    assert aggregator.calls == 1
    refused = await _refused(handler, _record({"address": ADDRESS.lower()}))
    assert refused.code == "idempotency_conflict"


async def test_a_repeat_of_what_a_replay_rejected_publishes_nothing(store: RequestStore) -> None:
    """X.2: a dead letter leaves a request open, the rejection that its replay came to does not."""
    handler = _handler(store, _Aggregator())
    first = await _accepted(handler, _record({"address": ADDRESS}))
    await store.conclude([Ending(REQUEST, "dead_lettered", b"{}")], 1)
    assert await _accepted(handler, _record({"address": ADDRESS}, offset=4)) == first
    await store.conclude([Ending(REQUEST, "rejected", b"{}")], 2)
    assert await _handled(handler, _record({"address": ADDRESS}, offset=5)) == [()]


async def test_of_two_replicas_at_once_both_publish_what_was_stored_first(
    store: RequestStore,
) -> None:
    """X.2: one request, one accepted event, though the aggregator told each another record."""
    aggregator = _MeetingAggregator()
    first, second = await asyncio.gather(
        *(_accepted(_handler(store, aggregator), _record({"address": ADDRESS})) for _ in range(2))
    )
    assert aggregator.calls == 2
    assert first == second
    assert first.id == event_id("order-1", "wallet.event.accepted.v1", first.value)


async def test_other_content_is_a_dead_letter_of_its_own(store: RequestStore) -> None:
    """DESIGN §2: it names a request id of its own, so that neither the first request's outcome
    nor one that the publisher names in its headers is overwritten."""
    handler = _handler(store, _Aggregator())
    await _accepted(handler, _record({"address": ADDRESS}))
    questionnaire = [{"question": "q", "answer": "a"}]
    refused = await _refused(
        handler, _record({"address": ADDRESS, "questionnaire": questionnaire}, offset=4)
    )
    assert refused.code == "idempotency_conflict"
    assert refused.request_id == request_id_from_position(SUBMITTED, 1, 4)
    assert REQUEST in str(refused)


@pytest.mark.parametrize("rubbish", [b"{bad", b"[]", b'{"address": "nobody"}', b""])
async def test_rubbish_under_anothers_id_ends_nothing(store: RequestStore, rubbish: bytes) -> None:
    """X.4, X.5: who knows a request's id must not be able to end it; alone it has that id."""
    handler = _handler(store, _Aggregator())
    first = await _refused(handler, _record(rubbish))
    assert first.request_id == REQUEST, "a publisher looks for its own mistake under its own id"
    await store.conclude([Ending(REQUEST, "dead_lettered", b"{}")], 1)
    assert (await _refused(handler, _record(rubbish, offset=4))).request_id == REQUEST
    await _accepted(handler, _record({"address": ADDRESS}, offset=5))
    later = await _refused(handler, _record(rubbish, offset=6))
    assert later.request_id == request_id_from_position(SUBMITTED, 1, 6)


async def test_an_outage_of_the_aggregator_is_no_end(store: RequestStore) -> None:
    """S3.8, X.2: a repeat after it asks again and is accepted."""
    aggregator = _Aggregator(AggregatorTimeout("silent"))
    handler = _handler(store, aggregator)
    refused = await _refused(handler, _record({"address": ADDRESS}))
    assert (refused.code, refused.request_id) == ("aggregator_timeout", REQUEST)
    await store.conclude([Ending(REQUEST, "dead_lettered", b"{}")], 1)
    aggregator.failure = None
    await _accepted(handler, _record({"address": ADDRESS}))
    known = await store.status(REQUEST)
    assert known is not None
    assert known.status == "pending"


@pytest.mark.parametrize(
    ("failure", "code", "later"),
    [
        (AggregatorTimeout("m"), "aggregator_timeout", True),
        (AggregatorUnavailable("m"), "aggregator_unavailable", True),
        (_Transient("m"), "aggregator_unavailable", True),
        (WalletUnknown("m"), "wallet_unknown", False),
        (AggregatorRefused("m"), "aggregator_refused", False),
        (AggregatorRubbish("m"), "aggregator_rubbish", False),
    ],
)
async def test_the_aggregators_errors_keep_their_names(
    store: RequestStore, failure: Exception, code: str, later: bool
) -> None:
    """S3.8: told apart, also where the client has a finer kind of its own; an outage is tried
    again later, what is final for the wallet is not."""
    handler = _handler(store, _Aggregator(failure))
    refused = await _refused(handler, _record({"address": ADDRESS}))
    assert (refused.code, refused.pointer, str(refused)) == (code, "/evm_data", "m")
    assert isinstance(refused, RetryLater) == later


async def test_without_an_aggregator_the_data_must_come_inline(store: RequestStore) -> None:
    """S3.8."""
    refused = await _refused(_handler(store), _record({"address": ADDRESS}))
    assert (refused.code, refused.pointer) == ("missing_field", "/evm_data")


@pytest.mark.parametrize(
    ("value", "headers", "code", "pointer"),
    [
        (b"", HEADERS, "empty", ""),
        (b"\xff", HEADERS, "invalid_utf8", ""),
        (b'{"address": 1}', HEADERS, "wrong_type", "/address"),
        (b"{}", (("content-type", b"application/cloudevents+json"),), "envelope", ""),
        (b"[", (("content-type", b"application/cloudevents+json"),), "invalid_json", ""),
        (b"[]", (("content-type", b"application/cloudevents+json"),), "not_an_object", ""),
    ],
)
async def test_what_cannot_be_read_is_a_dead_letter(
    store: RequestStore,
    value: bytes,
    headers: tuple[tuple[str, bytes], ...],
    code: str,
    pointer: str,
) -> None:
    """X.4: with a request id in any case, so that whoever asks for it is told."""
    refused = await _refused(_handler(store, _Aggregator()), _record(value, headers))
    assert (refused.code, refused.pointer) == (code, pointer)
    assert refused.request_id


async def test_a_record_without_an_id_is_its_place(store: RequestStore) -> None:
    """DESIGN §2: topic incarnation, partition and offset; a redelivery repeats it, the same value
    published again is another request."""
    handler = _handler(store, _Aggregator())
    record, twin = _record({"address": ADDRESS}, ()), _record({"address": ADDRESS}, (), offset=4)
    first, again, other = [await _accepted(handler, r) for r in (record, record, twin)]
    assert first.value == again.value
    requests = [json.loads(m.value)["meta"]["request_id"] for m in (first, other)]
    assert requests == [request_id_from_position(f"log-1/{SUBMITTED}", 1, n) for n in (3, 4)]


def _structured(**changes: Any) -> Record:
    event = {
        "specversion": "1.0", "id": "order-1", "source": "/shop", "type": SUBMITTED,
        "data": {"address": ADDRESS}, **changes,
    }  # fmt: skip
    return _record(event, (("content-type", b"application/cloudevents+json"),))


@pytest.mark.parametrize("attribute", ["id", "source", "type"])
@pytest.mark.parametrize("dirt", [{}, {f"{n}": "\ud800" for n in range(200)}])
async def test_an_attribute_that_no_header_can_carry_is_refused_by_name(
    store: RequestStore, attribute: str, dirt: dict[str, str]
) -> None:
    """X.4: wallet data are mended, an id never is: two of them would become one."""
    aggregator = _Aggregator()
    record = _structured(**dirt, **{attribute: "a\ud800"})
    refused = await _refused(_handler(store, aggregator), record)
    assert refused.code == "envelope"
    assert f"{attribute!r}" in str(refused)
    assert refused.request_id == request_id_from_position(f"log-1/{SUBMITTED}", 1, 3)
    assert aggregator.calls == 0


async def test_an_id_may_be_any_text(store: RequestStore) -> None:
    """DESIGN §2: what UTF-8 can carry travels on as it is, the data beside it is mended."""
    handler = _handler(store, _Aggregator())
    client_id = "\U0001f600\ufffd\0"
    data = {"address": ADDRESS, "questionnaire": [{"question": "\ud800", "answer": None}]}
    message = await _accepted(handler, _structured(id=client_id, data=data))
    event = json.loads(message.value)
    assert event["meta"]["request_id"] == request_id("default", "/shop", client_id)
    assert event["meta"]["causation_id"] == client_id
    assert event["questionnaire"] == [{"question": "\ufffd", "answer": None}]


async def test_a_structured_event_is_unwrapped(store: RequestStore) -> None:
    """DESIGN §2: id and source from the document, the submission from its data."""
    message = await _accepted(_handler(store, _Aggregator()), _structured())
    assert json.loads(message.value)["meta"]["request_id"] == REQUEST
