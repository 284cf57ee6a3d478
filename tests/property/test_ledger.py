"""The rules of reservation, on any sequence of batches, and the ledger that stores them."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from services.signer.adapters.ledger_sqlite import SqliteLedger
from services.signer.domain.ports import Signature
from services.signer.domain.reservation import (
    MAX_AHEAD_MS,
    Claim,
    ClockRefused,
    Conflict,
    Entry,
    Finished,
    RequestKey,
    Reservation,
    Reserved,
    WalletKey,
    plan_reservations,
)

START = 1_790_000_000_000
WALLETS = ["0x" + "ab" * 20, "0x" + "AB" * 20, "0x" + "cd" * 20]


def _claim(network: int, request: int, source: int, wallet: int) -> Claim:
    return Claim(
        network=f"net-{network}",
        request_id=f"request-{request}",
        wallet=WALLETS[wallet],
        score=source,
        source_event_id=f"source-{source}",
        source_sha256=bytes([source]) * 32,
        body=b"%d/%d/%d" % (request, source, wallet),
    )


CLAIMS = st.builds(
    _claim, st.integers(0, 1), st.integers(0, 5), st.integers(0, 2), st.integers(0, 2)
)
BATCHES = st.lists(
    st.tuples(st.lists(CLAIMS, max_size=8), st.integers(-90_000, 90_000), st.booleans()),
    max_size=12,
)


class _Memory:
    """The ledger's rules over dictionaries, one claim or one batch at a time."""

    def __init__(self) -> None:
        self.entries: dict[RequestKey, Entry] = {}
        self.last: dict[WalletKey, int] = {}

    def reserve(self, batch: list[Claim], now_ms: int) -> list[Reservation]:
        plan = plan_reservations(batch, self.entries, self.last, now_ms)
        for entry in plan.entries:
            assert entry.request not in self.entries
            assert self.last.get(entry.wallet_key, -1) < entry.timestamp_ms <= now_ms + MAX_AHEAD_MS
            assert entry.timestamp_ms >= now_ms
            self.entries[entry.request] = entry
            self.last[entry.wallet_key] = entry.timestamp_ms
        return plan.reservations


def _with_signature(answer: Reservation, signed: Finished | None) -> Reservation:
    """What the ledger answers where the request is `signed` already."""
    if isinstance(answer, Conflict):
        return replace(answer, signed=signed)
    return signed if isinstance(answer, Reserved) and signed is not None else answer


@given(BATCHES)
def test_no_sequence_breaks_the_promise(batches: list[tuple[list[Claim], int, bool]]) -> None:
    """X.2: one payload per request, one score per (network, wallet, moment), time only forward."""
    ledger = _Memory()
    now_ms = START
    payloads: dict[RequestKey, set[tuple[int, bytes]]] = {}
    for batch, step, _ in batches:
        now_ms += step
        for claim, answer in zip(batch, ledger.reserve(batch, now_ms), strict=True):
            if isinstance(answer, Reserved):
                payloads.setdefault(claim.request, set()).add((answer.timestamp_ms, answer.body))
                entry = ledger.entries[claim.request]
                assert entry.source_event_id == claim.source_event_id
            elif isinstance(answer, Conflict):
                assert answer.source_event_id != claim.source_event_id
            else:
                assert isinstance(answer, ClockRefused)
    assert all(len(seen) == 1 for seen in payloads.values())
    places = [(entry.wallet_key, entry.timestamp_ms) for entry in ledger.entries.values()]
    assert len(set(places)) == len(places)


@given(BATCHES)
def test_a_batch_is_its_claims_one_by_one(
    batches: list[tuple[list[Claim], int, bool]],
) -> None:
    """X.2: how the runtime cuts its batches changes nothing."""
    whole, single = _Memory(), _Memory()
    now_ms = START
    for batch, step, _ in batches:
        now_ms += step
        together = whole.reserve(batch, now_ms)
        assert together == [single.reserve([claim], now_ms)[0] for claim in batch]
    assert whole.entries == single.entries


@settings(max_examples=40, deadline=None)
@given(BATCHES)
def test_the_stored_ledger_follows_the_rules(
    batches: list[tuple[list[Claim], int, bool]],
) -> None:
    """X.2: through SQLite, with signatures in between and restarts, the answers are the same."""

    async def run(path: Path) -> None:
        model = _Memory()
        signed: dict[RequestKey, Finished] = {}
        now_ms = START
        ledger = SqliteLedger(path)
        await ledger.open()
        for batch, step, finishes in batches:
            now_ms += step
            expected = [
                _with_signature(answer, signed.get(claim.request))
                for claim, answer in zip(batch, model.reserve(batch, now_ms), strict=True)
            ]
            answers = await ledger.reserve(batch, now_ms)
            assert answers == expected
            if finishes:
                signatures = [
                    Signature(claim.request, f"event-{answer.timestamp_ms}", answer.body)
                    for claim, answer in zip(batch, answers, strict=True)
                    if isinstance(answer, Reserved)
                ]
                for signature, stored in zip(
                    signatures, await ledger.finish(signatures), strict=True
                ):
                    signed[signature.request] = stored
            else:
                await ledger.close()
                ledger = SqliteLedger(path)
                await ledger.open()
        await ledger.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder) / "ledger.sqlite"))
