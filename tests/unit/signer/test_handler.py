"""Validated to signed on the bus: the stored event, conflicts, refusals (SPEC X.2, S3.9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from coincurve import PrivateKey

from assay.events import WalletScoreValidated
from assay.ids import event_id
from assay_runtime.failures import DeadLetter, Pause, Stop
from assay_runtime.records import Delivery, Record, event_decoder
from services.signer.adapters.key_file import FileKey
from services.signer.domain.ports import Ledger
from services.signer.domain.signed_event import claim_of
from services.signer.domain.signing import Signer
from services.signer.handler import SignerHandler
from tests.unit.signer.claims import NETWORK, NOW, OTHER_WALLET, WALLET, validated

SIGNED, RECORDS = "wallet.score.signed.v1", "evidence.record.submitted.v1"


def _handler(ledger: Ledger, now: int = NOW) -> SignerHandler:
    key = FileKey(PrivateKey(b"\x07" * 32))
    return SignerHandler(Signer(ledger, key, NETWORK, lambda: now))


def _delivery(**changes: Any) -> Delivery[WalletScoreValidated]:
    score = validated(**changes)
    headers = (
        ("ce_id", score.event_id.encode()), ("ce_source", b"/assay/validator"),
        ("ce_specversion", b"1.0"), ("ce_type", b"wallet.score.validated.v1"),
    )  # fmt: skip
    record = Record("wallet.score.validated.v1", 0, 0, 0, None, score.value, headers)
    return event_decoder(WalletScoreValidated)(record)


async def test_the_signed_event_and_its_repeat_are_the_same_bytes(ledger: Ledger) -> None:
    """X.2: with the same event id, whoever signs it again and whenever."""
    delivery = _delivery()
    [[first]] = await _handler(ledger)([delivery])  # type: ignore[misc]
    [[again]] = await _handler(ledger, NOW + 5_000)([delivery])  # type: ignore[misc]
    assert (first.topic, first.key) == (SIGNED, WALLET.lower().encode())
    assert (again.value, again.headers) == (first.value, first.headers)
    assert first.id == event_id(delivery.id, SIGNED, first.value)
    headers = dict(first.headers)
    meta = json.loads(first.value)["meta"]
    assert headers["ce_requestid"].decode() == meta["request_id"]
    assert headers["ce_subject"].decode() == meta["wallet"]


async def test_another_score_for_the_request_is_recorded(ledger: Ledger) -> None:
    """X.2: never signed; the record names both."""
    first = _delivery(score=640)
    second = _delivery(score=990, request_id=first.event.meta.request_id)
    outcomes = await _handler(ledger)([first, second])
    [record] = outcomes[1]  # type: ignore[misc]
    assert record.topic == RECORDS
    event = json.loads(record.value)
    assert event["record"] == "LEDGER_CONFLICT"
    assert event["payload"]["refused_score"] == 990
    assert event["payload"]["signed_score"] == 640
    assert event["payload"]["refused_event_id"] == second.id
    assert event["payload"]["signed_from_event_id"] == first.id
    assert event["meta"]["causation_id"] == second.id


async def test_a_conflict_over_a_signed_request_repeats_its_event(ledger: Ledger) -> None:
    """X.2: a request asked anew after ingest forgot it ends with the very event that it has; alone
    and in a batch, with another source and with another value under the same id."""
    first, new = _delivery(score=640), _delivery(score=100)
    request_id = first.event.meta.request_id
    rivals = [
        _delivery(score=990, request_id=request_id),
        _delivery(score=990, request_id=request_id, source=first.id),
    ]
    [[signed]] = await _handler(ledger)([first])  # type: ignore[misc]
    [[repeat]] = await _handler(ledger, NOW + 9)([first])  # type: ignore[misc]
    together = await _handler(ledger, NOW + 9)([rivals[0], new, rivals[1]])
    alone = [outcome for rival in rivals for outcome in await _handler(ledger, NOW + 9)([rival])]
    for rival, outcome in zip(rivals * 2, [together[0], together[2], *alone], strict=True):
        published, record = outcome  # type: ignore[misc]
        assert published == repeat == signed
        event = json.loads(record.value)
        assert event["record"] == "LEDGER_CONFLICT"
        assert event["payload"]["refused_event_id"] == rival.id


async def test_a_conflict_over_an_unfinished_request_is_only_recorded(ledger: Ledger) -> None:
    """X.2: what is reserved and not signed yet is published by whoever signs it; nothing new is
    signed for the rival."""
    first = validated()
    await ledger.reserve([claim_of(first, NETWORK)], NOW)
    rival = _delivery(score=990, request_id=first.event.meta.request_id)
    [[record]] = await _handler(ledger)([rival])  # type: ignore[misc]
    assert record.topic == RECORDS
    entry = await ledger.get(claim_of(first, NETWORK).request)
    assert entry is not None
    assert entry.event is None


async def test_what_may_not_be_signed_is_a_dead_letter(ledger: Ledger) -> None:
    """X.4: a shadow's score, one that no service asked for (decision 20), an event that contradicts
    itself; the others of the batch are."""
    refusable = [
        _delivery(shadow=True), _delivery(unsealed=True), _delivery(wallet=OTHER_WALLET.lower()),
    ]  # fmt: skip
    outcomes = await _handler(ledger)([*refusable, _delivery()])
    refused = [outcome for outcome in outcomes if isinstance(outcome, DeadLetter)]
    assert [(r.code, r.pointer) for r in refused] == [
        ("unsignable", "/meta/shadow"), ("unsignable", "/meta/unsealed"),
        ("unsignable", "/meta/wallet"),
    ]  # fmt: skip
    assert all(r.request_id for r in refused)
    assert not isinstance(outcomes[3], DeadLetter)


async def test_a_clock_that_is_behind_pauses(ledger: Ledger) -> None:
    """DESIGN §3: more than a minute ahead of the clock is not signed; the record waits."""
    await _handler(ledger, NOW)([_delivery()])
    with pytest.raises(Pause, match="clock"):
        await _handler(ledger, NOW - 120_000)([_delivery()])


async def test_a_key_that_does_not_fit_stops(ledger: Ledger) -> None:
    """DESIGN §6: a signature that does not verify never leaves, and the service ends."""

    class Wrong(FileKey):
        def sign(self, message: bytes) -> bytes:
            return FileKey(PrivateKey(b"\x09" * 32)).sign(message)

    signer = Signer(ledger, Wrong(PrivateKey(b"\x07" * 32)), NETWORK, lambda: NOW)
    with pytest.raises(Stop):
        await SignerHandler(signer)([_delivery()])
