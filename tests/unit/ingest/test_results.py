"""Outcomes: projected from the bus, and waited for (issue 3 item 2)."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

from assay_runtime.failures import Pause
from assay_runtime.records import Delivery, Record, raw_decoder
from services.ingest.results import ResultsHandler, Waiting
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
    document = json.loads(next((EXAMPLES / topic / "valid").glob("*.json")).read_text())
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
