"""The double-sign ledger, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import asyncpg
import pytest

from assay_runtime.failures import Pause
from assay_runtime.settings import SettingsError
from services.signer.adapters.ledger_postgres import PostgresLedger
from services.signer.adapters.ledger_sqlite import SqliteLedger
from services.signer.domain.ports import Ledger
from services.signer.domain.reservation import (
    MAX_AHEAD_MS,
    ClockRefused,
    Conflict,
    Entry,
    Finished,
    RequestKey,
    Reserved,
)
from tests.unit.signer.claims import NOW, OTHER_WALLET, WALLET, claim, open_ledger, signature


async def test_a_reservation_is_the_payload_and_now(ledger: Ledger) -> None:
    """S3.9: the timestamp is the signer's, given in the moment of reservation."""
    mine = claim()
    assert await ledger.reserve([mine], NOW) == [Reserved(NOW, mine.body, fresh=True)]
    entry = await ledger.get(mine.request)
    assert entry == Entry(
        request=mine.request,
        wallet=WALLET,
        score=640,
        timestamp_ms=NOW,
        source_event_id=mine.source_event_id,
        source_sha256=mine.source_sha256,
        body=mine.body,
    )


async def test_a_repeat_gets_what_was_reserved(ledger: Ledger) -> None:
    """X.2: later, with another body (a newer release, say), the payload is still the first one."""
    first = claim("r", source="s", body=b"first")
    again = claim("r", source="s", body=b"second")
    await ledger.reserve([first], NOW)
    assert await ledger.reserve([again], NOW + 5_000) == [Reserved(NOW, b"first", fresh=False)]


async def test_a_finished_request_gives_its_bytes_for_ever(ledger: Ledger) -> None:
    """X.2: a repeat is byte-identical with the same event id."""
    mine = claim()
    await ledger.reserve([mine], NOW)
    sign = signature(mine, b"\x00 the event \xff")
    expected = Finished(sign.event_id, sign.event)
    assert await ledger.finish([sign]) == [expected]
    assert await ledger.reserve([mine], NOW + 1) == [expected]
    entry = await ledger.get(mine.request)
    assert entry is not None
    assert (entry.event_id, entry.event, entry.body) == (sign.event_id, sign.event, None)


async def test_the_first_signature_stands(ledger: Ledger) -> None:
    """X.2: two signers of one reservation give out one event, even with different keys."""
    mine = claim()
    await ledger.reserve([mine], NOW)
    first, second = signature(mine, b"first"), signature(mine, b"second")
    await ledger.finish([first])
    assert await ledger.finish([second]) == [Finished(first.event_id, b"first")]
    assert await ledger.finish([second, first]) == [Finished(first.event_id, b"first")] * 2


async def test_another_score_for_the_request_is_never_signed(ledger: Ledger) -> None:
    """X.2: another validated event for a request is a conflict, before and after signing."""
    mine, other = claim("r", score=640), claim("r", score=990)
    await ledger.reserve([mine], NOW)
    signed = None
    for _ in range(2):
        [answer] = await ledger.reserve([other], NOW + 1)
        assert isinstance(answer, Conflict)
        assert (answer.source_event_id, answer.score) == (mine.source_event_id, 640)
        assert answer.signed == signed
        [signed] = await ledger.finish([signature(mine)])
    entry = await ledger.get(mine.request)
    assert entry is not None
    assert entry.score == 640


async def test_the_same_score_from_another_event_is_a_conflict_too(ledger: Ledger) -> None:
    """X.2: it is the validated event that holds the request, not the number."""
    await ledger.reserve([claim("r", source="one")], NOW)
    [answer] = await ledger.reserve([claim("r", source="two")], NOW)
    assert isinstance(answer, Conflict)


async def test_a_forged_source_event_is_a_conflict(ledger: Ledger) -> None:
    """X.2: the same event id with other bytes is not the same event."""
    await ledger.reserve([claim("r", source="s", sha256=b"\x01" * 32)], NOW)
    [answer] = await ledger.reserve([claim("r", source="s", sha256=b"\x02" * 32)], NOW)
    assert isinstance(answer, Conflict)
    assert "other bytes" in answer.reason


async def test_case_cannot_dodge_the_ledger(ledger: Ledger) -> None:
    """X.2: another spelling of the address is the same wallet and the same request."""
    spellings = [WALLET, WALLET.lower(), "0x" + WALLET[2:].upper()]
    answers = await ledger.reserve([claim(wallet=spelling) for spelling in spellings], NOW)
    assert [a.timestamp_ms for a in answers if isinstance(a, Reserved)] == [NOW, NOW + 1, NOW + 2]
    [first, second] = [claim("r", wallet=spelling) for spelling in spellings[:2]]
    await ledger.reserve([first], NOW)
    [answer] = await ledger.reserve([second], NOW)
    assert isinstance(answer, Conflict)


async def test_timestamps_of_a_wallet_grow(ledger: Ledger) -> None:
    """X.2, S3.9: the later of now and the wallet's last + 1, also when the clock goes back."""
    times = []
    for now in (NOW, NOW, NOW - 30_000, NOW + 10):
        [answer] = await ledger.reserve([claim()], now)
        assert isinstance(answer, Reserved)
        times.append(answer.timestamp_ms)
    assert times == [NOW, NOW + 1, NOW + 2, NOW + 10]


async def test_wallets_and_networks_have_their_own_clocks(ledger: Ledger) -> None:
    """S3.9: the same moment serves every wallet, and one wallet on every network."""
    batch = [
        claim("r1"),
        claim("r2", wallet=OTHER_WALLET),
        claim("r1", network="sui:mainnet"),
    ]
    answers = await ledger.reserve(batch, NOW)
    assert answers == [Reserved(NOW, b'{"a":1}', fresh=True)] * 3


async def test_a_batch_keeps_its_order(ledger: Ledger) -> None:
    """X.2: claims of one wallet in one batch get increasing timestamps in their order."""
    batch = [claim(f"r{n}", wallet=(WALLET, OTHER_WALLET)[n % 2]) for n in range(20)]
    answers = await ledger.reserve(batch, NOW)
    times = [a.timestamp_ms for a in answers if isinstance(a, Reserved)]
    assert times[0::2] == times[1::2] == list(range(NOW, NOW + 10))


async def test_repeats_and_conflicts_within_a_batch(ledger: Ledger) -> None:
    """X.2: a batch that names a request twice is judged as if its claims came one by one."""
    first, other, last = claim("r", source="s"), claim("r", source="t"), claim("q")
    answers = await ledger.reserve([first, first, other, last], NOW)
    assert answers[0] == Reserved(NOW, first.body, fresh=True)
    assert answers[1] == Reserved(NOW, first.body, fresh=False)
    assert isinstance(answers[2], Conflict)
    assert answers[3] == Reserved(NOW + 1, last.body, fresh=True)


async def test_an_empty_batch_is_nothing(ledger: Ledger) -> None:
    """X.2: no claims, no reservations."""
    assert await ledger.reserve([], NOW) == []
    assert await ledger.finish([]) == []


async def test_a_clock_gone_back_is_refused(ledger: Ledger) -> None:
    """S3.9: more than 60 s ahead of now is refused and leaves no trace; the others go on."""
    await ledger.reserve([claim()], NOW)
    now = NOW - MAX_AHEAD_MS
    late, other = claim(), claim(wallet=OTHER_WALLET)
    assert await ledger.reserve([late, other], now) == [
        ClockRefused(NOW + 1, now),
        Reserved(now, other.body, fresh=True),
    ]
    assert await ledger.get(late.request) is None
    [answer] = await ledger.reserve([late], ClockRefused(NOW + 1, now).admissible_from_ms)
    assert answer == Reserved(NOW + 1, late.body, fresh=True)


async def test_finishing_what_was_not_reserved_is_refused(ledger: Ledger) -> None:
    """X.2: no signature enters the ledger without its reservation, and none beside it does."""
    mine, stranger = claim(), claim()
    await ledger.reserve([mine], NOW)
    with pytest.raises(LookupError, match=stranger.request_id):
        await ledger.finish([signature(mine), signature(stranger)])
    entry = await ledger.get(mine.request)
    assert entry is not None
    assert entry.event is None


async def test_a_batch_is_all_or_nothing(ledger: Ledger) -> None:
    """X.2: a claim that the database refuses takes its whole batch with it."""
    good, bad = claim(), claim(wallet=None)  # type: ignore[arg-type]
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the driver calls it
        await ledger.reserve([good, bad], NOW)
    assert await ledger.get(good.request) is None
    assert await ledger.reserve([good], NOW) == [Reserved(NOW, good.body, fresh=True)]


async def test_hundreds_of_claims_in_one_batch(ledger: Ledger) -> None:
    """X.2: batches as large as the runtime's pass in one transaction."""
    batch = [claim(wallet=f"0x{n % 300:040x}") for n in range(1_000)]
    answers = await ledger.reserve(batch, NOW)
    places = {
        (c.wallet, a.timestamp_ms)
        for c, a in zip(batch, answers, strict=True)
        if isinstance(a, Reserved)
    }
    assert len(places) == 1_000
    signatures = [signature(c, c.request_id.encode()) for c in batch]
    assert [f.event for f in await ledger.finish(signatures)] == [s.event for s in signatures]


async def test_concurrent_batches_of_the_same_wallets(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X.2: batches that lock the same wallets in different orders neither deadlock nor collide."""
    monkeypatch.setattr("services.signer.adapters.ledger_postgres._TRIES", 1)
    wallets = [f"0x{n:040x}" for n in range(60)]
    batches = [
        [claim(wallet=w) for w in (wallets if n % 2 else reversed(wallets))] for n in range(12)
    ]
    answers = await asyncio.gather(*(ledger.reserve(batch, NOW) for batch in batches))
    times = [
        (c.wallet, a.timestamp_ms)
        for batch, reserved in zip(batches, answers, strict=True)
        for c, a in zip(batch, reserved, strict=True)
        if isinstance(a, Reserved)
    ]
    assert sorted(times) == [(w, NOW + n) for w in wallets for n in range(12)]


async def test_one_request_under_two_wallets_at_once(ledger: Ledger) -> None:
    """X.2: two wallets cannot share a request, also when both come in the same moment."""
    for _ in range(10):
        one, two = claim(), claim()
        first = [claim(r.request_id) for r in (one, two)]
        second = [claim(r.request_id, wallet=OTHER_WALLET) for r in (two, one)]
        both = await asyncio.gather(ledger.reserve(first, NOW), ledger.reserve(second, NOW))
        answers = [answer for batch in both for answer in batch]
        assert sum(isinstance(a, Reserved) for a in answers) == 2
        assert sum(isinstance(a, Conflict) for a in answers) == 2


async def test_the_ledger_remembers_over_a_restart(ledger_address: str) -> None:
    """X.2: what was reserved and what was finished stand after closing."""
    first = open_ledger(ledger_address)
    await first.open()
    reserved, finished = claim(), claim()
    await first.reserve([reserved, finished], NOW)
    await first.finish([signature(finished)])
    await first.close()
    second = open_ledger(ledger_address)
    await second.open()
    answers = await second.reserve([reserved, finished], NOW + 99)
    assert answers[0] == Reserved(NOW, reserved.body, fresh=False)
    assert isinstance(answers[1], Finished)
    await second.close()


async def test_a_ledger_that_is_not_open_pauses(ledger_address: str) -> None:
    """X.6: a ledger that is away is an outage, not the record's failure."""
    with pytest.raises(Pause):
        await open_ledger(ledger_address).reserve([claim()], NOW)


async def _tamper(address: str, statement: str) -> None:
    """Run one statement on the ledger's table behind its back."""
    if address.startswith("postgresql://"):
        connection = await asyncpg.connect(address)
        try:
            await connection.execute(statement.replace("entry", "ledger_entry"))
        finally:
            await connection.close()
    else:
        with sqlite3.connect(address) as connection:
            connection.execute(statement)
        connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entry",
        "UPDATE entry SET score = 1000 WHERE event IS NULL",
        "UPDATE entry SET body = 'x' WHERE event IS NULL",
        "UPDATE entry SET timestamp_ms = 5",
        "UPDATE entry SET event = 'x' WHERE event IS NOT NULL",
    ],
)
async def test_the_database_itself_refuses_to_forget(
    ledger: Ledger, ledger_address: str, statement: str
) -> None:
    """X.2: rows are never deleted and change once, from reserved to signed."""
    reserved, finished = claim(), claim()
    await ledger.reserve([reserved, finished], NOW)
    await ledger.finish([signature(finished)])
    with pytest.raises((sqlite3.IntegrityError, asyncpg.RaiseError)):
        await _tamper(ledger_address, statement)


async def test_two_scores_at_one_moment_cannot_be_stored(
    ledger: Ledger, ledger_address: str
) -> None:
    """DESIGN §3: (network, wallet, timestamp) never carries two scores."""
    await ledger.reserve([claim()], NOW)
    with pytest.raises(
        (sqlite3.IntegrityError, asyncpg.UniqueViolationError), match=r"UNIQUE|duplicate key"
    ):
        await _tamper(
            ledger_address,
            "INSERT INTO entry SELECT network, 'another', wallet_lower, wallet, score,"
            " timestamp_ms, source_event_id, source_sha256, body, event_id, event FROM entry",
        )


async def test_a_newer_schema_is_refused(ledger_address: str) -> None:
    """X.4: an older signer does not touch the ledger of a newer one."""
    ledger = open_ledger(ledger_address)
    await ledger.open()
    await ledger.close()
    if ledger_address.startswith("postgresql://"):
        connection = await asyncpg.connect(ledger_address)
        await connection.execute("UPDATE schema_version SET version = 99 WHERE what = 'ledger'")
        await connection.close()
    else:
        connection = sqlite3.connect(ledger_address)
        connection.execute("PRAGMA user_version=99")
        connection.close()
    with pytest.raises(SettingsError, match="newer version"):
        await open_ledger(ledger_address).open()


@pytest.mark.postgres
async def test_postgres_that_forgets_commits_is_refused(postgres_url: str) -> None:
    """DESIGN §3: a reservation must be on the disk before the key is used."""
    connection = await asyncpg.connect(postgres_url)
    database = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    await connection.close()
    with pytest.raises(SettingsError, match="synchronous_commit"):
        await PostgresLedger(postgres_url).open()


async def test_sqlite_commits_reach_the_disk(tmp_path: Path) -> None:
    """DESIGN §3: synchronous FULL; WAL with NORMAL could lose the last commits with the power."""
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    await ledger.open()
    assert await ledger._file.read(lambda db: db.execute("PRAGMA synchronous").fetchone()[0]) == 2
    assert (
        await ledger._file.read(lambda db: db.execute("PRAGMA journal_mode").fetchone()[0]) == "wal"
    )
    await ledger.close()


async def test_a_request_nobody_made(ledger: Ledger) -> None:
    """X.2: asking changes nothing."""
    assert await ledger.get(RequestKey("sui:testnet", "nobody")) is None
