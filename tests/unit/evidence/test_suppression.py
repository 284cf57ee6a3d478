"""No record can keep another one out of evidence (DESIGN §2, §7; SPEC X.3)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from assay.batch.items import Item
from assay.batch.requests import Batch
from assay.contracts import iter_examples
from assay.envelope import Headers, Message, emit
from assay.events import (
    EVENTS,
    GenerationRequested,
    WalletEventAccepted,
    WalletEventSubmitted,
)
from assay.events.meta import InternalEvent, Meta
from assay.ids import event_id, request_id, request_id_from_position
from assay.topics import catalogue
from assay_runtime.seals import SEAL, Seals
from services.evidence.domain import CONFLICT, Entry, Kept, Row, entry_of
from services.evidence.domain.repeats import SEAL_HEADER, conflict_of
from services.evidence.store import EvidenceStore, Query
from services.signer.domain.signed_event import signed_event_id
from tests.unit.evidence.entries import WALLET, entry, erasure

SUBMITTED, ACCEPTED = WalletEventSubmitted.type, WalletEventAccepted.type
REQUESTED, RETRIED = GenerationRequested.type, "llm.generation.retried.v1"
SIGNED = "wallet.score.signed.v1"
MINE = "6f1c8d5e-9a4b-4c3d-8e2f-1a2b3c4d5e6f"
OTHERS = b"7f1c8d5e-9a4b-4c3d-8e2f-1a2b3c4d5e6f"
META = Meta(request_id=MINE, tenant_id="default", wallet=WALLET).caused_by("order-1", b"{}")
SEALS, LATER_SEALS = Seals([b"k" * 32]), Seals([b"l" * 32, b"k" * 32])
INTERNAL = [topic for topic in catalogue() if topic.name != SUBMITTED]


def _made(event: InternalEvent, topic: str | None = None) -> Message:
    """As services make their events."""
    parent = event.meta.causation_id or event.meta.request_id
    return emit(event, topic=topic or event.type, source="/assay/x", parent_id=parent)


def _request(topic: str = REQUESTED) -> Message:
    return _made(GenerationRequested(meta=META, input={"text": "x"}), topic)


def _examples(kind: str) -> list[Any]:
    model = EVENTS[kind]
    return [model.model_validate_json(one.value) for one in iter_examples(kind) if one.valid]


def _read(made: Message, offset: int = 0, **changes: bytes | None) -> Entry:
    """The message as a record; of `changes`, a header that is None is left out."""
    headers: Headers = tuple((n, v) for n, v in made.headers if n not in changes)
    headers += tuple((n, v) for n, v in changes.items() if v is not None)
    return entry_of(
        made.topic, 0, offset, 1_790_000_000_000 + offset, headers, made.value, tenant="default",
        key=made.key,
    )  # fmt: skip


async def _rows(store: EvidenceStore, query: Query | None = None) -> list[Row]:
    return [row for _, row in (await store.query(query or Query(), 0, 1_000, 10**9)).rows]


async def test_a_copy_on_the_clients_topic_takes_nothing_away(store: EvidenceStore) -> None:
    """X.3: a service's event is kept under its id, though a client has published its bytes under
    that id on the topic that clients write."""
    genuine = _made(_examples(ACCEPTED)[0])
    forged = _read(genuine._replace(topic=REQUESTED), ce_requestid=OTHERS)
    await store.append([forged], {})
    [kept] = await store.append([_read(genuine, 1)], {})
    assert (kept.entry.event_id, kept.entry.type) == (genuine.id, ACCEPTED)
    assert (await _rows(store, Query(request_id=kept.entry.request_id))) == [kept]
    # Nor does one that says it is of another type.
    forged = _read(genuine._replace(topic=REQUESTED), ce_type=ACCEPTED.encode())
    assert forged.event_id not in (genuine.id, kept.entry.event_id)


def test_the_type_is_the_topics() -> None:
    """A client's request that calls itself a signed score is shown as none."""
    assert _read(_request(), ce_type=SIGNED.encode()).type == REQUESTED


@pytest.mark.parametrize("topic", INTERNAL, ids=lambda topic: topic.name)
def test_what_services_publish_keeps_its_id(topic: Any) -> None:
    """DESIGN §2: of every topic, at the head of a chain and within."""
    for event in _examples(topic.event):
        for changes in ({}, {"causation_id": None}, {"causation_id": "order \u00e9\u0000 1"}):
            made = event.model_copy(update={"meta": event.meta.model_copy(update=changes)})
            message = SEALS.put(_made(made, topic.name))
            entry = _read(message, traceparent=b"0" * 55, assay_duration_ms=b"7")
            assert entry.event_id == message.id


def test_what_others_publish_by_the_rule_keeps_its_id() -> None:
    """DESIGN §2: the batch client's requests; the signer's ids, which the ledger holds."""
    batch = Batch("b", "open_notes")
    first = batch.first_request(Item(unit_id="u", input={"text": "x"}))
    failure = {"unit_id": "u", "input": {"text": "x"}, "retry_count": 0, "errors": [],
               "_metadata": {"step": "notes"}}  # fmt: skip
    for message in (first, batch.retry_request(failure)):
        assert _read(message).event_id == message.id
    [signed, *_] = _examples(SIGNED)
    message = _made(signed)
    assert message.id == signed_event_id(signed.meta.causation_id, message.value)


@pytest.mark.parametrize(
    "identifier", [b"mine", b"order \xff", str(uuid.UUID(int=7, version=4)).encode()]
)
def test_an_id_against_the_rule_names_its_own_record_alone(identifier: bytes) -> None:
    """X.3: the same id, topic and bytes are the same record; nothing else is."""
    made = _request()
    entry = _read(made, ce_id=identifier)
    assert entry.event_id not in (identifier.decode("utf-8", "replace"), made.id)
    assert _read(made, 9, ce_id=identifier).event_id == entry.event_id
    for other in (made._replace(value=made.value + b" "), made._replace(topic=RETRIED)):
        assert _read(other, ce_id=identifier).event_id != entry.event_id
    # Parent and bytes of the one, id of the other.
    assert _read(made, ce_causationid=b"order-2").event_id != made.id
    assert _read(made._replace(value=b"{}")).event_id != made.id


COPIES: dict[str, Callable[[Message], Entry]] = {
    "another request": lambda made: _read(made, 1, ce_requestid=OTHERS),
    "no request": lambda made: _read(made, 1, ce_requestid=None),
    "no seal": lambda made: _read(made, 1, **{SEAL: None}),
    "an empty seal": lambda made: _read(made, 1, **{SEAL: b""}),
    "another seal": lambda made: _read(made, 1, **{SEAL: b"0" * 64}),
    "another wallet": lambda made: _read(made, 1, ce_subject=b"0x" + b"6b" * 20),
    "no wallet": lambda made: _read(made._replace(key=b""), 1, ce_subject=None),
    "the other topic of its event": lambda made: _read(made._replace(topic=RETRIED), 1),
}


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("batches", [1, 2])
async def test_a_copy_that_obeys_the_rule_takes_nothing_away(
    store: EvidenceStore, copy: str, batches: int
) -> None:
    """X.3: whoever publishes a record's bytes first under its id, but says anything else of them,
    only gets a row before it; in whatever order they are read again, nothing is added."""
    genuine = _read(SEALS.put(_request()))
    forged = COPIES[copy](SEALS.put(_request()))
    assert forged.event_id == genuine.event_id
    for batch in ([forged, genuine],) if batches == 1 else ([forged], [genuine]):
        await store.append(batch, {})
    first, second = await _rows(store)
    assert first.entry == forged
    assert second.entry == replace(genuine, event_id=second.entry.event_id, type=CONFLICT)
    assert second.entry.event_id != genuine.event_id
    assert await store.append([genuine, forged, genuine], {}) == []
    assert second in await _rows(store, Query(request_id=MINE, wallet=WALLET))


async def test_a_redelivery_is_no_conflict(store: EvidenceStore) -> None:
    """DESIGN §3: time, place, trace, duration, the order of headers and what is beside them may
    differ; a seal of a new key is one more row, once."""
    made = SEALS.put(_request())
    [kept] = await store.append([_read(made, traceparent=b"0" * 55)], {})
    again = [
        _read(made),
        _read(made, 5, traceparent=b"1" * 55, assay_duration_ms=b"7", tracestate=b"x"),
        _read(made._replace(headers=made.headers[::-1]), 6),
        replace(_read(made), partition=3, timestamp_ms=1),
    ]
    assert await store.append(again, {}) == []
    assert await _rows(store) == [kept]
    resealed = _read(LATER_SEALS.put(_request()))
    [second] = await store.append([resealed, resealed], {})
    assert (second.entry.type, second.entry.value) == (CONFLICT, made.value)
    assert await store.append([resealed, *again], {}) == []


@pytest.mark.parametrize("batches", [1, 2, 3])
async def test_a_taken_conflict_takes_nothing_away(store: EvidenceStore, batches: int) -> None:
    """X.3: not even rows that stand under the ids of a record, of its conflict and of the
    conflict's, within a batch or over batches; each once, however often they are read."""
    genuine = entry(request_id=MINE)
    once = conflict_of(genuine)
    junk = [entry(event_id=e.event_id) for e in (genuine, once, conflict_of(once))]
    given = [junk[1], junk[2], junk[0], genuine]
    cuts = {1: [4], 2: [2, 4], 3: [2, 3, 4]}[batches]
    for start, end in zip([0, *cuts], cuts, strict=False):
        await store.append(given[start:end], {})
    rows = await _rows(store)
    assert [row.entry.value for row in rows if row.entry.request_id == MINE] == [genuine.value]
    assert len(rows) == 4
    assert await store.append(given[::-1], {}) == []


async def test_what_is_erased_stays_so_and_alone(
    new_store: Callable[[], EvidenceStore],
) -> None:
    """DESIGN §7: reading a topic again neither restores a row nor says that it conflicts with what
    is left of it; what another request says in the same bytes is kept."""
    store = new_store()
    await store.open()
    made = SEALS.put(_request())
    letter = made._replace(topic=f"{REQUESTED}.scorer.dlq")
    unruled = _read(made, 2, ce_id=b"mine")
    given = [_read(made), _read(made, 1, **{SEAL: None}), unruled, _read(letter, 3)]
    others = _read(made, 5, ce_requestid=OTHERS)
    assert len(await store.append([*given, others], {})) == 5
    assert (await store.erase(erasure(request_id=MINE))).rows == 4
    before = await _rows(store)
    again = [_read(made, 7, traceparent=b"1" * 55), *given, others]
    assert await store.append(again, {}) == []
    assert await store.append(again[::-1], {}) == []
    assert await _rows(store) == before
    held = [row for row in before if row.entry.value == made.value]
    assert [row.entry.request_id for row in held] == [OTHERS.decode()]
    [late] = await store.append([_read(made, 8, ce_requestid=b"third")], {})
    assert (late.entry.type, late.entry.request_id) == (CONFLICT, "third")
    await store.close()


async def test_a_place_that_was_foreseen_takes_nothing_away(store: EvidenceStore) -> None:
    """DESIGN §2: a submission without an id, offered again with the one it was given, is the same
    row; one that took that id beforehand is another."""
    places = [request_id_from_position(SUBMITTED, 0, offset) for offset in (1, 2)]

    def submitted(offset: int, *headers: tuple[str, bytes]) -> Entry:
        return entry_of(SUBMITTED, 0, offset, 5, headers, b"{}", tenant="default")

    def named(place: str, offset: int) -> Entry:
        return submitted(offset, ("ce_id", place.encode()), ("ce_source", b"/anonymous"))

    given, again = submitted(1), named(places[0], 8)
    assert given.event_id == again.event_id
    assert len(await store.append([given, again], {})) == 1
    assert await store.append([again, given], {}) == []
    forged, genuine = named(places[1], 9), submitted(2)
    assert forged.event_id == genuine.event_id
    assert forged.request_id == request_id("default", "/anonymous", places[1])
    await store.append([forged], {})
    [kept] = await store.append([genuine], {})
    assert (kept.entry.type, kept.entry.request_id) == (CONFLICT, places[1])
    assert await store.append([genuine, forged], {}) == []


async def test_one_look_up_tells_of_a_batch(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is new or a repeat needs no second one, what conflicts no more than that."""
    module = __import__(type(store).__module__, fromlist=["_stored"])
    stored, asked = module._stored, []

    def counted(db: Any, ids: list[str]) -> Any:
        asked.append(len(ids))
        return stored(db, ids)

    monkeypatch.setattr(module, "_stored", counted)
    batch = [entry() for _ in range(700)]
    await store.append([*batch, *batch], {})
    await store.append(batch, {})
    assert asked == [700, 700]
    await store.append([*batch[10:], *(replace(e, value=b"other") for e in batch[:10])], {})
    assert asked == [700, 700, 700, 10]


def test_the_seal_that_is_compared_is_the_one_that_counts() -> None:
    """ARCHITECTURE, decision 20: of several the last, under that name alone."""
    made = SEALS.put(_request())
    assert SEAL_HEADER == SEAL
    for seal, headers in (
        (b"b", ((SEAL, b"a"), (SEAL, b"b"))),
        (b"", ((SEAL, b"a"), (SEAL, None))),
        (None, ((SEAL.upper(), b"a"),)),
    ):
        assert Kept.of(replace(_read(made), headers=headers)).seal == seal
    assert event_id("order-1", REQUESTED, made.value) == made.id
