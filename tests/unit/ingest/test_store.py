"""The request table, on SQLite and on PostgreSQL (issue 3 item 2)."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable

import pytest

from assay_runtime.failures import Pause
from assay_runtime.records import Position
from assay_runtime.settings import SettingsError
from services.ingest.app import open_store
from services.ingest.store import Ending, Known, Owner, RequestStore, Status

A, B = "a" * 64, "b" * 64


def _id() -> str:
    return str(uuid.uuid4())


async def test_the_first_announcement_stays(store: RequestStore) -> None:
    """DESIGN §2: the same id with other content is told from a repeat."""
    request = _id()
    first = await store.announce(request, A, 1)
    assert first == Known(request, A, "pending")
    assert await store.announce(request, B, 2) == first
    assert await store.status(request) == await store.get(request) == first


async def test_the_first_accepted_event_stays(store: RequestStore) -> None:
    """DESIGN §2: a repeat gets the bytes that stand there."""
    request = _id()
    known = Known(request, A, "pending", b"\x00first\xff")
    assert await store.accept(request, A, b"\x00first\xff", 1) == known
    assert await store.accept(request, A, b"second", 2) == known
    assert await store.accept(request, B, b"other content", 2) == known
    assert await store.get(request) == known


async def test_other_content_than_announced_is_not_accepted(store: RequestStore) -> None:
    """DESIGN §2: the announced content is what the id stands for."""
    request = _id()
    await store.announce(request, A, 1)
    assert await store.accept(request, B, b"event", 2) == Known(request, A, "pending")
    assert await store.accept(request, A, b"event", 2) == Known(request, A, "pending", b"event")


async def test_an_owner_stays_with_its_request(store: RequestStore) -> None:
    """S5.1: whose request it is decides who may read its answer; a repeat sees whether it stands
    on the bus already."""
    request, acme = _id(), Owner("acme", "open_notes")
    first = await store.announce(request, A, 1, acme)
    assert first == Known(request, A, "pending", owner=acme)
    await store.published(request)
    published = Known(request, A, "pending", owner=acme, published=True)
    assert await store.announce(request, A, 2, Owner("other", "quiz_card")) == published
    assert await store.status(request) == await store.get(request) == published
    await store.conclude([Ending(request, "accepted", b"{}", owned_only=True)], 3)
    [ended] = await store.endings([request])
    assert (ended.status, ended.owner) == ("accepted", acme)


async def test_an_answer_counts_for_its_owner_only(store: RequestStore) -> None:
    """S5.1: nothing is kept of what nobody here asked for, nor does it end a wallet's request."""
    strange, wallets, owned = _id(), _id(), _id()
    await store.announce(wallets, A, 1)
    await store.announce(owned, A, 1, Owner("acme", "p"))
    requests = [strange, wallets, owned]
    await store.conclude([Ending(r, "rejected", b"1", owned_only=True) for r in requests], 2)
    await store.conclude([Ending(r, "accepted", b"2", owned_only=True) for r in requests], 3)
    await store.conclude([Ending(r, "rejected", b"3", owned_only=True) for r in requests], 4)
    [known] = await store.endings(requests)
    # A dead letter or a rejection that was replayed ends well, as a signed score does.
    assert (known.request_id, known.status, known.outcome) == (owned, "accepted", b"2")
    assert await store.status(strange) is None


async def test_the_first_hash_of_a_version_stays(new_store: Callable[[], RequestStore]) -> None:
    """DESIGN §2: a used version is immutable; it is remembered over restarts."""
    first, second = new_store(), new_store()
    await first.open()
    assert await first.used_versions() == {}
    await first.use_versions({("p", "1"): A, ("q", "1"): A}, 1)
    await first.use_versions({("p", "1"): B, ("p", "2"): B}, 2)
    await first.close()
    await second.open()
    used = await second.used_versions()
    assert used == {("p", "1"): A, ("q", "1"): A, ("p", "2"): B}
    await second.forget(1_000_000)
    assert await second.used_versions() == used
    await second.close()


async def test_megabytes_are_read_by_those_only_who_need_them(store: RequestStore) -> None:
    """Issue 3: accepted events may have megabytes; polling does not read them."""
    request = _id()
    await store.accept(request, A, b"x" * 3_000_000, 1)
    assert await store.status(request) == Known(request, A, "pending")
    assert await store.announce(request, A, 2) == Known(request, A, "pending")
    found = await store.get(request)
    assert found is not None
    assert len(found.accepted or b"") == 3_000_000


async def test_the_first_outcome_stays_but_a_later_end_wins(store: RequestStore) -> None:
    """Issue 3: projecting again changes nothing, whatever is read twice; a dead letter that was
    replayed may be rejected or end well, a signed score is never taken back."""
    request = _id()
    dead = Ending(request, "dead_lettered", b'{"code": "c"}')
    dead_again = Ending(request, "dead_lettered", b'{"code": "d"}')
    rejected = Ending(request, "rejected", b'{"code": "r"}')
    rejected_again = Ending(request, "rejected", b'{"code": "s"}')
    signed = Ending(request, "signed", b'{"score": 1}')
    other = Ending(request, "signed", b'{"score": 2}')
    for ending, kept in ((dead, dead), (dead_again, dead), (rejected, rejected), (dead, rejected),
                         (rejected_again, rejected), (signed, signed), (other, signed),
                         (dead, signed), (rejected, signed), (signed, signed)):  # fmt: skip
        await store.conclude([ending], 1)
        expected = Known(request, None, kept.status, None, kept.outcome)
        assert await store.status(request) == expected
        assert await store.endings([request, _id()]) == [expected]


@pytest.mark.parametrize("owner", [None, Owner("acme", "p")])
@pytest.mark.parametrize("batches", [1, 4])
async def test_the_order_of_the_topics_makes_no_difference(
    store: RequestStore, owner: Owner | None, batches: int
) -> None:
    """Endings stand on several topics, which are read in no order among each other."""
    statuses: tuple[Status, ...] = ("dead_lettered", "rejected", "accepted" if owner else "signed")
    for wanted in (statuses, statuses[:2]):
        for order in itertools.permutations(wanted):
            request = _id()
            await store.announce(request, A, 1, owner)
            endings = [Ending(request, s, s.encode(), owner is not None) for s in order]
            for batch in [endings] if batches == 1 else [[each] for each in endings]:
                await store.conclude(batch, 2)
            [known] = await store.endings([request])
            assert (known.status, known.outcome) == (wanted[-1], wanted[-1].encode())


async def test_a_rejection_ends_what_a_dead_letter_left_open(store: RequestStore) -> None:
    """The accepted event of a dead-lettered request is kept for its replay; once that was rejected
    it can go, and nothing opens the request again."""
    request = _id()
    await store.accept(request, A, b"event", 1)
    await store.conclude([Ending(request, "dead_lettered", b"1")], 2)
    await store.conclude([Ending(request, "rejected", b"2")], 3)
    assert await store.get(request) == Known(request, A, "rejected", None, b"2")
    await store.reopen(request)
    assert (await store.accept(request, A, b"event", 4)).status == "rejected"


@pytest.mark.parametrize("status", ["signed", "rejected"])
async def test_an_ended_request_keeps_no_event(store: RequestStore, status: str) -> None:
    """A repeat of it publishes nothing, so its megabytes can go; its content is still known."""
    request = _id()
    await store.accept(request, A, b"event", 1)
    await store.conclude([Ending(request, status, b"{}")], 2)  # type: ignore[arg-type]
    assert await store.get(request) == Known(request, A, status, None, b"{}")  # type: ignore[arg-type]
    # A slow replica that accepts now is told so, and does not open it again.
    late = await store.accept(request, A, b"late", 3)
    assert (late.status, late.accepted) == (status, None)


async def test_a_dead_lettered_request_can_be_accepted_again(store: RequestStore) -> None:
    """An aggregator's outage is no end: the same submission later is taken."""
    request = _id()
    await store.announce(request, A, 1)
    await store.conclude([Ending(request, "dead_lettered", b"{}")], 2)
    assert await store.accept(request, A, b"event", 3) == Known(request, A, "pending", b"event")
    assert await store.endings([request]) == []
    # Once accepted, its event is kept: a repeat publishes it again.
    await store.conclude([Ending(request, "dead_lettered", b"{}")], 4)
    known = await store.get(request)
    assert known == Known(request, A, "dead_lettered", b"event", b"{}")


async def test_reopening_forgets_a_failure_before_acceptance_only(store: RequestStore) -> None:
    """The same Idempotency-Key may try again after an outage of the aggregator."""
    failed, accepted, signed = _id(), _id(), _id()
    await store.accept(accepted, A, b"event", 1)
    await store.conclude(
        [Ending(failed, "dead_lettered", b"{}"), Ending(accepted, "dead_lettered", b"{}"),
         Ending(signed, "signed", b"{}")],
        2,
    )  # fmt: skip
    for request in (failed, accepted, signed, _id()):
        await store.reopen(request)
    ended = {known.request_id for known in await store.endings([failed, accepted, signed])}
    assert ended == {accepted, signed}


async def test_many_endings_at_once(store: RequestStore) -> None:
    """More than one statement may hold as parameters."""
    requests = [_id() for _ in range(1_200)]
    await store.conclude([Ending(r, "signed", r.encode()) for r in requests], 1)
    found = await store.endings(requests)
    assert {known.request_id: known.outcome for known in found} == {
        request: request.encode() for request in requests
    }


async def test_offsets_are_kept_with_the_endings(new_store: Callable[[], RequestStore]) -> None:
    """DESIGN §3: what a restored table has not seen is read again; offsets only grow, and none is
    kept of what was not stored."""
    store, restarted = new_store(), new_store()
    await store.open()
    request, here, there = _id(), Position("t", 0), Position("t", 1)
    assert await store.positions([here, there]) == {}
    await store.conclude([Ending(request, "signed", b"{}")], 1, {here: 7, there: 1})
    await store.conclude([], 2, {here: 5, there: 2})
    # A partition that no database counts.
    impossible = Position("t", 2**63)
    with pytest.raises(Exception, match=r"int|range|large"):
        await store.conclude([Ending("lost", "signed", b"{}")], 3, {here: 9, impossible: 1})
    await store.close()
    await restarted.open()
    assert await restarted.positions([here, there, Position("u", 0)]) == {here: 7, there: 2}
    assert await restarted.endings(["lost"]) == []
    await restarted.close()


async def test_what_was_touched_long_ago_is_forgotten(store: RequestStore) -> None:
    """Issue 3: for a configured time."""
    old, new = _id(), _id()
    await store.announce(old, A, 1_000)
    await store.announce(new, A, 1_000)
    await store.accept(new, A, b"event", 2_000)
    assert await store.forget(2_000) == 1
    assert await store.get(old) is None
    assert await store.get(new) is not None


async def test_two_replicas_agree(new_store: Callable[[], RequestStore]) -> None:
    """Issue 3: one accepted event per request, whoever comes first; outcomes projected by both in
    different orders do not wait for each other for ever."""
    one, other = new_store(), new_store()
    await one.open()
    await other.open()
    requests = [_id() for _ in range(20)]
    answers = await asyncio.gather(
        *(
            store.accept(request, A, name + request.encode(), 1)
            for request in requests
            for store, name in ((one, b"one "), (other, b"other "))
        )
    )
    by_request: dict[str, set[bytes | None]] = {}
    for known in answers:
        by_request.setdefault(known.request_id, set()).add(known.accepted)
    assert {len(events) for events in by_request.values()} == {1}
    signed = [Ending(request, "signed", b"{}") for request in requests]
    dead = [Ending(request, "dead_lettered", b"{}") for request in reversed(requests)]
    places = {Position("t", number): 7 for number in range(50)}
    backwards = dict(reversed(places.items()))
    async with asyncio.timeout(30):
        await asyncio.gather(
            *(one.conclude(signed, 2, places) for _ in range(5)),
            *(other.conclude(dead, 2, backwards) for _ in range(5)),
            *(one.conclude([], 2, places) for _ in range(20)),
            *(other.conclude([], 2, backwards) for _ in range(20)),
        )
    assert {known.status for known in await one.endings(requests)} == {"signed"}
    await asyncio.gather(one.close(), other.close())


async def test_what_is_stored_is_there_after_a_restart(
    new_store: Callable[[], RequestStore],
) -> None:
    """DESIGN §3."""
    first, second = new_store(), new_store()
    await first.open()
    request = _id()
    await first.accept(request, A, b"event", 1)
    await first.close()
    await second.open()
    assert await second.get(request) == Known(request, A, "pending", b"event")
    await second.close()


async def test_a_store_that_is_not_open_pauses(new_store: Callable[[], RequestStore]) -> None:
    """DESIGN §3: an outage of the store is nobody's failure."""
    store = new_store()
    with pytest.raises(Pause):
        await store.get(_id())


def test_other_urls_are_refused() -> None:
    """Issue 3 item 4."""
    with pytest.raises(SettingsError, match="ASSAY_INGEST__STORE"):
        open_store("mysql://localhost/x")
