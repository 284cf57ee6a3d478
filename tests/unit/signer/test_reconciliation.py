"""A ledger that learns from the signed topic what it has forgotten."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from coincurve import PrivateKey

from services.signer.adapters.key_file import FileKey
from services.signer.adapters.ledger_sqlite import SqliteLedger
from services.signer.domain.ports import Ledger
from services.signer.domain.reconciliation import AdoptedEvent, Adoption, adopted_event
from services.signer.domain.reservation import (
    Conflict,
    Finished,
    LedgerMismatch,
    RequestKey,
    Reserved,
)
from services.signer.domain.signed_event import signed_event_id
from services.signer.domain.signing import Signed, Signer
from tests.unit.signer.claims import NETWORK, NOW, WALLET, claim, signature, validated

TOPIC = "wallet.score.signed.v1"


def _event(
    request_id: str = "r",
    *,
    timestamp_ms: int = NOW,
    score: int = 640,
    wallet: str = WALLET,
    source: str = "source",
    value: bytes = b"signed",
    sha256: bytes = b"\x01" * 32,
) -> AdoptedEvent:
    return AdoptedEvent(
        event_id=f"id-of-{value.decode()}",
        event=value,
        request=RequestKey(NETWORK, request_id),
        wallet=wallet,
        score=score,
        timestamp_ms=timestamp_ms,
        source_event_id=source,
        source_sha256=sha256,
    )


async def test_an_adopted_event_is_a_finished_one(ledger: Ledger) -> None:
    """X.2: what the topic holds signed is repeated, never signed anew, and its moment is taken."""
    event = _event()
    assert (await ledger.adopt([event], TOPIC, {3: 17})).added == 1
    answers = await ledger.reserve(
        [claim("r", source="source"), claim("r", source="other"), claim("new")], NOW - 10
    )
    assert answers[0] == Finished(event.event_id, event.event)
    assert isinstance(answers[1], Conflict)
    assert isinstance(answers[2], Reserved)
    assert answers[2].timestamp_ms == NOW + 1


async def test_adopting_again_changes_nothing(ledger: Ledger) -> None:
    """X.2: start after start, the same events may be read back."""
    events = [_event(), _event("q", timestamp_ms=NOW + 1, value=b"other")]
    assert (await ledger.adopt(events, TOPIC, {})).added == 2
    assert await ledger.adopt([*events, *events], TOPIC, {}) == Adoption()


async def test_positions_only_go_forward(ledger: Ledger) -> None:
    """X.2: where reading goes on, per topic and partition."""
    assert await ledger.positions(TOPIC) == {}
    await ledger.adopt([], TOPIC, {0: 5, 7: 12})
    await ledger.adopt([], TOPIC, {0: 4, 7: 13})
    await ledger.adopt([], "another.topic.v1", {0: 99})
    assert await ledger.positions(TOPIC) == {0: 5, 7: 13}


async def test_a_reservation_whose_signature_was_published(ledger: Ledger) -> None:
    """X.2: reserved in the backup, signed since: the published bytes become the stored ones."""
    mine = claim("r", source="source")
    await ledger.reserve([mine], NOW)
    assert (await ledger.adopt([_event()], TOPIC, {0: 1})).added == 1
    assert await ledger.reserve([mine], NOW) == [Finished("id-of-signed", b"signed")]


@pytest.mark.parametrize(
    "event",
    [
        _event(score=641),
        _event(timestamp_ms=NOW + 1),
        _event(wallet=WALLET.lower()),
    ],
)
async def test_a_reservation_for_something_else(ledger: Ledger, event: AdoptedEvent) -> None:
    """X.2: a published event that contradicts a reservation stops the signer."""
    await ledger.reserve([claim("r", source="source")], NOW)
    with pytest.raises(LedgerMismatch, match="request r"):
        await ledger.adopt([event], TOPIC, {0: 9})
    assert await ledger.positions(TOPIC) == {}


async def test_two_payloads_for_one_request(ledger: Ledger) -> None:
    """X.2: a double signature in the topic is found, against the ledger and within a batch."""
    planted = [_event(), _event(value=b"another", timestamp_ms=NOW + 1)]
    with pytest.raises(LedgerMismatch):
        await ledger.adopt(planted, TOPIC, {0: 2})
    assert await ledger.get(planted[0].request) is None
    await ledger.adopt(planted[:1], TOPIC, {0: 1})
    with pytest.raises(LedgerMismatch, match="request r"):
        await ledger.adopt(planted[1:], TOPIC, {0: 2})
    assert await ledger.positions(TOPIC) == {0: 1}


@pytest.mark.parametrize("change", [{"wallet": WALLET.lower()}, {"score": 641}])
async def test_two_payloads_at_one_moment(ledger: Ledger, change: dict[str, Any]) -> None:
    """DESIGN §3: (network, wallet, timestamp) cannot carry two scores, in whatever spelling."""
    planted = [_event("one"), _event("two", value=b"two", **change)]
    with pytest.raises(LedgerMismatch, match=r"request two .* for request one"):
        await ledger.adopt(planted, TOPIC, {})
    await ledger.reserve([claim("one", source="source")], NOW)
    with pytest.raises(LedgerMismatch, match=r"request two .* for request one"):
        await ledger.adopt(planted[1:], TOPIC, {})


async def test_copies_of_an_event_are_passed_over(ledger: Ledger) -> None:
    """X.2: the payload stays the request's it was first seen for, with the bytes it had; within a
    batch and against the ledger, while the positions go on."""
    mine = _event()
    copies = [
        _event(value=b"edited"),
        _event("another", value=b"another"),
        _event("another", value=b"another", sha256=b"\x02" * 32),
    ]
    together = await ledger.adopt([mine, *copies], TOPIC, {0: 4})
    later = await ledger.adopt(copies, TOPIC, {0: 8})
    assert (together.added, later.added) == (1, 0)
    for adoption in (together, later):
        assert [event for event, _ in adoption.passed_over] == copies
        assert [reason for _, reason in adoption.passed_over] == [
            "the request's signed event is id-of-signed",
            *["its payload is that of request r"] * 2,
        ]
    entry = await ledger.get(mine.request)
    assert entry is not None
    assert (entry.event_id, entry.event) == (mine.event_id, mine.event)
    assert await ledger.get(copies[1].request) is None
    assert await ledger.positions(TOPIC) == {0: 8}


@pytest.mark.parametrize("change", [{"source": "other"}, {"sha256": b"\x02" * 32}])
async def test_a_reservation_is_finished_by_its_own_event(
    ledger: Ledger, change: dict[str, Any]
) -> None:
    """X.2: a copy that names another ancestor than was reserved is passed over, whatever comes
    after it."""
    mine = claim("r", source="source")
    await ledger.reserve([mine], NOW)
    copy = _event(value=b"copy", **change)
    adoption = await ledger.adopt([copy, _event("q", value=b"q"), _event()], TOPIC, {})
    assert (adoption.added, len(adoption.passed_over)) == (1, 2)
    assert await ledger.reserve([mine], NOW) == [Finished("id-of-signed", b"signed")]


async def test_a_ledger_restored_from_a_backup(tmp_path: Path) -> None:
    """X.2: signed after the backup and read back, nothing is signed twice."""
    key = FileKey(PrivateKey(b"\x07" * 32))
    path, backup = tmp_path / "ledger.sqlite", tmp_path / "backup.sqlite"
    before, after = validated(), validated(score=701)
    ledger = SqliteLedger(path)
    await ledger.open()
    published = await Signer(ledger, key, NETWORK, lambda: NOW).sign_batch([before])
    await ledger.close()
    shutil.copy(path, backup)
    ledger = SqliteLedger(path)
    await ledger.open()
    published += await Signer(ledger, key, NETWORK, lambda: NOW + 5).sign_batch([after])
    await ledger.close()

    restored = SqliteLedger(backup)
    await restored.open()
    read_back = [adopted_event(p.event_id, p.value) for p in published if isinstance(p, Signed)]
    assert (await restored.adopt(read_back, TOPIC, {0: 2})).added == 1
    again = await Signer(restored, key, NETWORK, lambda: NOW + 60).sign_batch([before, after])
    assert [(p.event_id, p.value) for p in again if isinstance(p, Signed)] == [
        (p.event_id, p.value) for p in published if isinstance(p, Signed)
    ]
    rival = validated(score=999, request_id=after.event.meta.request_id)
    [answer] = await Signer(restored, key, NETWORK, lambda: NOW + 60).sign_batch([rival])
    assert isinstance(answer, Conflict)
    await restored.close()


async def test_what_is_no_signed_event_cannot_be_adopted(ledger: Ledger) -> None:
    """X.2: a record that is no signed score, or that names no ancestor, is refused as such."""
    mine = validated()
    [signed] = await Signer(
        ledger, FileKey(PrivateKey(b"\x07" * 32)), NETWORK, lambda: NOW
    ).sign_batch([mine])
    assert isinstance(signed, Signed)
    for rubbish in (b"", b"{}", mine.value):
        with pytest.raises(ValueError):  # noqa: PT011 - pydantic's own message
            adopted_event("id", rubbish)
    orphan = json.loads(signed.value)
    orphan["meta"]["causation_id"] = None
    with pytest.raises(ValueError, match="does not name the validated event"):
        adopted_event("id", json.dumps(orphan).encode())
    orphan["meta"]["causation_id"] = "\x00"
    value = json.dumps(orphan).encode()
    with pytest.raises(ValueError, match="NUL"):
        adopted_event(signed_event_id("\x00", value), value)


async def test_an_id_that_does_not_follow_from_the_bytes(ledger: Ledger) -> None:
    """X.2: the signer's own id is made of the ancestor's and the bytes; any other is a copy's."""
    mine = validated()
    key = FileKey(PrivateKey(b"\x07" * 32))
    [signed] = await Signer(ledger, key, NETWORK, lambda: NOW).sign_batch([mine])
    assert isinstance(signed, Signed)
    assert adopted_event(signed.event_id, signed.value).event == signed.value
    for event_id, value in [
        (mine.event_id, signed.value),
        ("", signed.value),
        (signed.event_id, signed.value + b" "),
    ]:
        with pytest.raises(ValueError, match="does not follow from the record's bytes"):
            adopted_event(event_id, value)


async def test_a_late_signature_meets_the_adopted_one(ledger: Ledger) -> None:
    """X.2: who finishes after an adoption gets the published bytes."""
    mine = claim("r", source="source")
    await ledger.reserve([mine], NOW)
    await ledger.adopt([_event()], TOPIC, {})
    assert await ledger.finish([signature(mine, b"mine")]) == [Finished("id-of-signed", b"signed")]
