"""Outcomes: projected from the bus, and waited for (issue 3 item 2)."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from assay.envelope import emit
from assay.events import GenerationRequested, Meta
from assay_runtime.dead_letters import dead_letter
from assay_runtime.failures import DeadLetter, Pause
from assay_runtime.records import Delivery, Position, Record, raw_decoder
from assay_runtime.seals import Seals
from assay_runtime.settings import KafkaSection
from assay_runtime.starting import FROM_FIRST
from services.ingest.app import build, open_store
from services.ingest.results import ResultsHandler, Waiting
from services.ingest.settings import IngestSection, IngestSettings
from services.ingest.store import Ending, Owner, RequestStore

EXAMPLES = Path(__file__).resolve().parents[3] / "schemas" / "examples"
SIGNED, REJECTED = "wallet.score.signed.v1", "llm.generation.rejected.v1"
ACCEPTED = "llm.generation.accepted.v1"
OF_WALLET = {"ce_subject": "0x" + "ab" * 20}


def _delivery(topic: str, value: bytes, **headers: str) -> Delivery[None]:
    pairs = tuple(
        (name if name.startswith("ce_") else name.replace("_", "."), text.encode())
        for name, text in headers.items()
    )
    return raw_decoder(Record(topic, 0, 0, 0, None, value, pairs))


def _example(topic: str, request: str, **changes: Any) -> bytes:
    document = json.loads(min((EXAMPLES / topic / "valid").glob("*.json")).read_text())
    document["meta"]["request_id"] = request
    return json.dumps({**document, **changes}).encode()


async def test_every_kind_of_end_is_projected(store: RequestStore) -> None:
    """Issue 3: signed, rejected, dead-lettered; an attempt that is retried and a rejection that
    became a fallback score are no end. Read twice it is the same."""
    signed, withheld, retried, fell_back, dead = (str(uuid.uuid4()) for _ in range(5))
    deliveries = [
        _delivery(SIGNED, _example(SIGNED, signed)),
        _delivery(REJECTED, _example(REJECTED, withheld, terminal=True, ends_as="withheld",
                                     reason="answers_rejected"), **OF_WALLET),
        _delivery(REJECTED, _example(REJECTED, retried, terminal=False, ends_as=None),
                  **OF_WALLET),
        _delivery(REJECTED, _example(REJECTED, fell_back, terminal=True,
                                     ends_as="fallback_score"), **OF_WALLET),
        _delivery("wallet.event.submitted.v1.ingest.dlq", b"\xff", assay_request_id=dead,
                  assay_error_code="invalid_json"),
    ]  # fmt: skip
    handler = ResultsHandler(store, Waiting(store))
    everyone = [signed, withheld, retried, fell_back, dead]
    seen = []
    for _ in range(2):
        assert await handler(deliveries) == [()] * 5
        seen.append({k.request_id: (k.status, k.outcome) for k in await store.endings(everyone)})
    assert seen[0] == seen[1]
    assert {request: status for request, (status, _) in seen[0].items()} == {
        signed: "signed",
        withheld: "rejected",
        dead: "dead_lettered",
    }
    assert json.loads(seen[0][dead][1] or b"")["code"] == "invalid_json"
    assert json.loads(seen[0][withheld][1] or b"")["code"] == "answers_rejected"


async def test_only_what_was_asked_here_is_kept_of_other_requests(store: RequestStore) -> None:
    """S5.1: ends of a batch's units do not fill the table; those of the Intelligence API's own
    requests are there, whatever their process is about."""
    owner = Owner("acme", "open_notes")
    ours, failed, refused, units = (str(uuid.uuid4()) for _ in range(4))
    for request in (ours, failed, refused):
        await store.announce(request, "a" * 64, 1, owner)
    rejection: dict[str, Any] = {
        "terminal": True, "ends_as": "rejected", "reason": "answers_rejected",
    }  # fmt: skip
    dlq = "llm.generation.requested.v1.scorer.dlq"
    await ResultsHandler(store, Waiting(store))(
        [
            _delivery(ACCEPTED, _example(ACCEPTED, ours, final=True)),
            _delivery(ACCEPTED, _example(ACCEPTED, units, final=True), **OF_WALLET),
            _delivery(REJECTED, _example(REJECTED, failed, **rejection)),
            _delivery(REJECTED, _example(REJECTED, units, **rejection)),
            _delivery(dlq, b"{}", assay_request_id=refused, assay_error_code="unknown_process"),
            _delivery(dlq, b"{}", assay_request_id=units, assay_error_code="unknown_process"),
        ]
    )
    known = {k.request_id: k for k in await store.endings([ours, failed, refused, units])}
    assert {request: k.status for request, k in known.items()} == {
        ours: "accepted",
        failed: "rejected",
        refused: "dead_lettered",
    }
    assert {k.owner for k in known.values()} == {owner}
    assert await store.status(units) is None
    assert json.loads(known[failed].outcome or b"")["errors"]


@pytest.mark.parametrize("first", ["letter", "rejection"])
async def test_a_replay_that_is_rejected_is_shown_as_rejected(
    store: RequestStore, first: str
) -> None:
    """X.2: whoever asks is told how the request ended, not what became of its first try, in
    whatever order the two topics are read; a conflict of its id is another's dead letter."""
    request = str(uuid.uuid4())
    letter = _delivery("wallet.event.accepted.v1.features.dlq", b"{}", assay_request_id=request,
                       assay_error_code="handler_failed", **OF_WALLET)  # fmt: skip
    conflict = _delivery("wallet.event.submitted.v1.ingest.dlq", b"{}",
                         assay_request_id=str(uuid.uuid4()),
                         assay_error_code="idempotency_conflict")  # fmt: skip
    rejection = _delivery(REJECTED, _example(REJECTED, request, terminal=True, ends_as="withheld",
                                             reason="answers_rejected"), **OF_WALLET)  # fmt: skip
    order = [letter, rejection] if first == "letter" else [rejection, letter]
    handler = ResultsHandler(store, Waiting(store))
    for delivery in (*order, conflict, *order):
        await handler([delivery])
    [known] = await store.endings([request])
    assert known.status == "rejected"
    assert json.loads(known.outcome or b"")["code"] == "answers_rejected"


@pytest.mark.parametrize("unsealed", [False, True])
async def test_what_a_client_asked_ends_nobodys_request(
    store: RequestStore, unsealed: bool
) -> None:
    """Decision 20: neither a request of the Intelligence API nor a wallet's, by acceptance,
    rejection or the dead letter of an answer. What the services asked ends as ever."""
    outcomes: list[tuple[str, dict[str, Any]]] = [
        (ACCEPTED, {"final": True}),
        (REJECTED, {"terminal": True, "ends_as": "rejected", "reason": "answers_rejected"}),
        ("llm.generation.answered.v1.validator.dlq", {}),
        ("wallet.score.validated.v1.signer.dlq", {}),
    ]
    ids = [str(uuid.uuid4()) for _ in outcomes]
    deliveries = []
    for request, (topic, changes) in zip(ids, outcomes, strict=True):
        await store.announce(request, "a" * 64, 1, Owner("acme", "open_notes"))
        document = json.loads(_example(topic if "dlq" not in topic else ACCEPTED, request))
        document["meta"]["unsealed"] = unsealed
        value = json.dumps({**document, **changes}).encode()
        deliveries.append(_delivery(topic, value, assay_request_id=request, **OF_WALLET))
    await ResultsHandler(store, Waiting(store))(deliveries)
    assert len(await store.endings(ids)) == (0 if unsealed else 4)


async def test_a_refused_request_ends_one_only_with_its_seal(store: RequestStore) -> None:
    """Decision 20: a client may write a request that nobody can answer, with any id on it. The
    headers of the record itself count, not those that were added; without keys all is trusted."""
    seals = Seals([b"k" * 32])
    ours, forged, replaced, trusted = (str(uuid.uuid4()) for _ in range(4))
    for request in (ours, forged, replaced, trusted):
        await store.announce(request, "a" * 64, 1, Owner("acme", "open_notes"))

    def letter(request: str, sealed: bool, value: bytes | None = None) -> Delivery[None]:
        event = GenerationRequested(meta=Meta(request_id=request, tenant_id="acme"), input={})
        plain = emit(event, topic=event.type, source="/x", parent_id=request)
        message = seals.put(plain) if sealed else plain
        record = Record(
            message.topic, 0, 7, 0, message.key, value or message.value, message.headers
        )
        reason = DeadLetter("no such process", code="unknown_process", request_id=request)
        made = dead_letter(record, reason, "scorer")
        return raw_decoder(Record(made.topic, 0, 0, 0, made.key, made.value, made.headers))

    letters = [letter(ours, True), letter(forged, False), letter(replaced, True, b"{}")]
    await ResultsHandler(store, Waiting(store), seals)(letters)
    await ResultsHandler(store, Waiting(store))([letter(trusted, False)])
    known = await store.endings([ours, forged, replaced, trusted])
    assert {each.request_id for each in known} == {ours, trusted}


async def test_a_request_id_that_is_none_of_ours_ends_nothing(store: RequestStore) -> None:
    """X.4: any client may write an id that a database refuses; its neighbours count."""
    storable = [
        "550E8400-E29B-41D4-A716-446655440000",
        "{550e8400-e29b-41d4-a716-446655440000}",
        "550e8400-e29b-41d4-a716-446655440000\n",
        "550e8400e29b41d4a716446655440000",
    ]
    incompressible = "".join(map(chr, range(0x4E00, 0x5600)))
    of_topics = {
        "llm.generation.requested.v1.scorer.dlq": "ce_requestid",
        "llm.generation.answered.v1.validator.dlq": "ce_requestid",
        "wallet.event.submitted.v1.ingest.dlq": "assay_request_id",
    }
    ours = str(uuid.uuid4())
    deliveries = [
        _delivery(topic, b"{}", **{header: text}, assay_error_code="c", **OF_WALLET)
        for topic, header in of_topics.items()
        for text in ("a\0b", incompressible, *storable)
    ]
    deliveries.append(_delivery(SIGNED, _example(SIGNED, ours)))
    await ResultsHandler(store, Waiting(store))(deliveries)
    [known] = await store.endings([ours, *storable])
    assert (known.request_id, known.status) == (ours, "signed")


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\uffff" * 1_000])
async def test_what_a_stranger_says_of_an_end_is_kept_as_it_is(
    store: RequestStore, text: str
) -> None:
    """X.4: codes and reasons are headers, which may hold what no text column takes."""
    request = str(uuid.uuid4())
    told = (
        ("assay.request.id", request.encode()),
        ("assay.error.code", text.encode(errors="surrogatepass")),
        ("assay.error.pointer", b"/a"),
        ("__connect.errors.exception.message", text.encode(errors="surrogatepass")),
    )
    record = Record("wallet.event.submitted.v1.ingest.dlq", 0, 0, 0, None, b"{}", told)
    await ResultsHandler(store, Waiting(store))([raw_decoder(record)])
    [known] = await store.endings([request])
    outcome = json.loads(known.outcome or b"")
    shown = text.encode(errors="surrogatepass").decode(errors="replace")
    assert (outcome["code"], outcome["reason"]) == (shown, shown)
    assert outcome["errors"] == [{"path": "$.a", "rule": shown, "message": shown}]


def test_rubbish_on_the_topics_of_outcomes_is_no_bad_deploy() -> None:
    """X.4: whoever may write on the bus can make dead letters; they must not end the service."""
    [results] = [p for p in build(IngestSettings()).pipelines if p.name == "ingest.results"]
    assert not results.dead_letter_limit
    assert not results.keeps_dead_letters


async def test_a_strangers_record_stops_nothing(store: RequestStore) -> None:
    """X.4: what no service of ours wrote is skipped, its neighbours count."""
    signed = str(uuid.uuid4())
    deliveries = [
        _delivery(SIGNED, b"no json"),
        _delivery(REJECTED, b"{}"),
        _delivery(SIGNED, b""),
        _delivery("wallet.event.submitted.v1.ingest.dlq", b""),
        _delivery(SIGNED, _example(SIGNED, signed)),
    ]
    assert await ResultsHandler(store, Waiting(store))(deliveries) == [()] * 5
    [known] = await store.endings([signed])
    assert known.status == "signed"


async def test_offsets_are_kept_of_every_record(store: RequestStore) -> None:
    """DESIGN §3: also of those that end nothing, and per incarnation of a log that forgets."""
    here, there = Position(SIGNED, 0), Position(SIGNED, 1)
    read = [(0, 4), (1, 8), (0, 5)]
    handler = ResultsHandler(store, Waiting(store), log_name="log-1")
    await handler([raw_decoder(Record(SIGNED, p, at, 0, None, b"no json", ())) for p, at in read])
    assert await handler.offsets.positions([here, there]) == {here: 6, there: 9}
    await handler.offsets.pass_over({here: 20, there: 3})
    assert await handler.offsets.positions([there, here]) == {here: 20, there: 9}
    for name in ("", "log-2"):
        other = ResultsHandler(store, Waiting(store), log_name=name)
        unknown = {here: FROM_FIRST, there: FROM_FIRST}
        assert await other.offsets.positions([here, there]) == unknown


async def test_the_service_keeps_them_under_its_logs_name_and_for_a_while(tmp_path: Path) -> None:
    """Ends on topics that are kept longer than the table's rows would come back alone when all is
    read anew: a dead letter without the score that followed it."""
    file = f"sqlite:///{tmp_path}/requests.sqlite"
    section = IngestSection(store=file, request_memory_h=24)
    service = build(IngestSettings(kafka=KafkaSection(log="log-1"), ingest=section))
    [results] = [p for p in service.pipelines if p.name == "ingest.results"]
    old, young, undated = (str(uuid.uuid4()) for _ in range(3))
    now_ms = time.time_ns() // 1_000_000
    ages = {old: now_ms - 25 * 3_600_000, young: now_ms - 23 * 3_600_000, undated: -1}
    deliveries = [
        raw_decoder(Record(SIGNED, 0, offset, at, None, _example(SIGNED, request), ()))
        for offset, (request, at) in enumerate(ages.items())
    ]
    store = open_store(file)
    await store.open()
    async with service.resources[0]:
        await results.handler(deliveries)
        assert results.stored_positions is not None
        here = Position(SIGNED, 0)
        assert await results.stored_positions.positions([here]) == {here: 3}
    assert await store.positions([Position(f"log-1/{SIGNED}", 0)]) != {}
    assert {known.request_id for known in await store.endings(list(ages))} == {young, undated}
    await store.close()


async def test_the_waiter_is_woken_at_once(store: RequestStore) -> None:
    """Issue 3: the replica that projects the outcome wakes its own waiters without polling."""
    request = str(uuid.uuid4())
    waiting = Waiting(store)
    handler = ResultsHandler(store, waiting)
    waiters = [asyncio.create_task(waiting.outcome(request, 20)) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert len(waiting) == 3
    await handler([_delivery(SIGNED, _example(SIGNED, request))])
    async with asyncio.timeout(10):
        found = await asyncio.gather(*waiters)
    assert {known.status for known in found if known} == {"signed"}
    assert len(waiting) == 0


async def test_another_replicas_outcome_is_found(store: RequestStore) -> None:
    """Issue 3: an outcome that came into the table from elsewhere is seen by the poll."""
    request = str(uuid.uuid4())
    waiting = Waiting(store)
    poll = asyncio.create_task(waiting.poll())
    waiter = asyncio.create_task(waiting.outcome(request, 20))
    await asyncio.sleep(0.05)
    await store.conclude([Ending(request, "rejected", b"{}")], 1)
    async with asyncio.timeout(10):
        known = await waiter
    poll.cancel()
    assert known is not None
    assert known.status == "rejected"


async def test_the_deadline_and_the_end_of_the_service_end_the_wait(store: RequestStore) -> None:
    """Issue 3: after the deadline there is no outcome; a service that ends keeps nobody."""
    waiting = Waiting(store)
    assert await waiting.outcome("r", 0.05) is None
    poll = asyncio.create_task(waiting.poll())
    waiter = asyncio.create_task(waiting.outcome("r", 600))
    await asyncio.sleep(0.05)
    poll.cancel()
    async with asyncio.timeout(10):
        assert await waiter is None
    assert len(waiting) == 0


class _AwayOnce:
    """A store that is away at the first poll."""

    def __init__(self, store: RequestStore) -> None:
        self._store = store
        self.asked = 0

    async def endings(self, requests: Any) -> Any:
        self.asked += 1
        if self.asked == 2:
            raise Pause("requests", "away")
        return await self._store.endings(requests)


async def test_the_poll_outlives_an_outage(store: RequestStore) -> None:
    """DESIGN §3: the store away for a moment ends neither the poll nor the wait."""
    away = _AwayOnce(store)
    waiting = Waiting(away)  # type: ignore[arg-type]
    poll = asyncio.create_task(waiting.poll())
    waiter = asyncio.create_task(waiting.outcome("r", 20))
    while away.asked < 3:
        await asyncio.sleep(0.02)
    await store.conclude([Ending("r", "signed", b"{}")], 1)
    async with asyncio.timeout(10):
        known = await waiter
    assert known is not None
    assert not poll.done()
    poll.cancel()


async def test_nobody_is_left_in_the_books(store: RequestStore) -> None:
    """A waiter that is cancelled, as when its client hangs up, gives its place back."""
    waiting = Waiting(store)
    waiter = asyncio.create_task(waiting.outcome("r", 600))
    await asyncio.sleep(0.05)
    assert len(waiting) == 1
    waiter.cancel()
    await asyncio.wait([waiter])
    assert len(waiting) == 0
