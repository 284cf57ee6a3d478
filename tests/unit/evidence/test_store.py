"""The evidence store, on SQLite and on PostgreSQL (DESIGN §7)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from assay_runtime.failures import Pause
from assay_runtime.records import Position
from assay_runtime.settings import SettingsError
from services.evidence.app import open_store
from services.evidence.domain import CONFLICT, Row, leaf_hash
from services.evidence.store import EvidenceStore, Query
from tests.unit.evidence.entries import WALLET, entry, erasure

HERE = Position("wallet.score.signed.v1", 0)
MUCH = 10**9


async def _all(store: EvidenceStore, query: Query | None = None) -> list[Row]:
    page = await store.query(query or Query(), 0, 1_000, MUCH)
    assert page.next is None
    return [row for _, row in page.rows]


async def test_rows_are_kept_as_they_came(store: EvidenceStore) -> None:
    """DESIGN §7: raw bytes, headers, place, and a salted hash over them."""
    given = [entry(), entry(value=b"\x00\xff", request_id=None, wallet=None), entry(value=b"")]
    rows = await store.append(given, {HERE: 3})
    assert await _all(store) == rows
    assert [row.entry for row in rows] == given
    assert [(row.shard, row.seq) for row in rows] == [(0, 0), (0, 1), (0, 2)]
    assert [row.leaf_hash for row in rows] == [
        leaf_hash(row.entry, row.salt, row.header_data) for row in rows
    ]
    assert all(len(row.salt) == 16 for row in rows)
    assert len({row.salt for row in rows}) == 3
    assert await store.positions([HERE, Position("other", 0)]) == {HERE: 3}


async def test_a_redelivery_adds_nothing(store: EvidenceStore) -> None:
    """DESIGN §3: within a batch and over batches, wherever it was read."""
    first = entry()
    again = replace(first, partition=1, offset=7, timestamp_ms=1, headers=(("ce_id", b"1"),))
    rows = await store.append([first, first], {})
    assert len(rows) == 1
    assert await store.append([first, again], {HERE: 9}) == []
    assert await _all(store) == rows
    assert await store.positions([HERE]) == {HERE: 9}


async def test_the_same_id_with_other_bytes_is_recorded(store: EvidenceStore) -> None:
    """DESIGN §7: once for each other content, under an id of its own, the first one untouched;
    within a batch and over batches."""
    first = entry()
    other = replace(first, value=b"other")
    third = replace(first, value=b"third")
    await store.append([first, other], {})
    await store.append([other, third, first], {})
    await store.append([third], {})
    kept = await _all(store)
    assert [(row.entry.type, row.entry.value) for row in kept] == [
        (first.type, first.value),
        (CONFLICT, b"other"),
        (CONFLICT, b"third"),
    ]
    assert len({row.entry.event_id for row in kept}) == 3
    assert [row.seq for row in kept] == [0, 1, 2]


async def test_every_shard_counts_for_itself(store: EvidenceStore) -> None:
    """DESIGN §7: the shard is the partition number; sequences have no gap."""
    for _ in range(3):
        await store.append([entry(partition=shard) for shard in (0, 2, 2)], {})
    numbers = Counter(row.shard for row in await _all(store))
    assert numbers == {0: 3, 2: 6}
    found = {(row.shard, row.seq) for row in await _all(store)}
    assert found == {(0, n) for n in range(3)} | {(2, n) for n in range(6)}


async def test_a_crash_between_loses_and_doubles_nothing(store: EvidenceStore) -> None:
    """DESIGN §7: rows and offsets are one transaction: what fails before the offsets are written
    leaves neither."""
    await store.append([entry()], {HERE: 1})
    before = await _all(store)
    broken: Any = {HERE: 3, Position("t", 0): None}
    with pytest.raises((sqlite3.IntegrityError, asyncpg.NotNullViolationError)):
        await store.append([entry(), entry()], broken)
    assert await _all(store) == before
    assert await store.positions([HERE]) == {HERE: 1}
    await store.append([entry(), entry()], {HERE: 3})
    assert [row.seq for row in await _all(store)] == [0, 1, 2]


async def test_offsets_never_go_back(store: EvidenceStore) -> None:
    """DESIGN §3: a slow writer of an old assignment cannot make the next one read again."""
    await store.append([], {HERE: 7})
    await store.append([], {HERE: 5, Position("t", 1): 1})
    assert await store.positions([HERE, Position("t", 1)]) == {HERE: 7, Position("t", 1): 1}


async def test_two_writers(new_store: Callable[[], EvidenceStore]) -> None:
    """DESIGN §7: writers that read the same after a rebalance keep each event once, without gaps
    and without waiting for each other for ever."""
    one, other = new_store(), new_store()
    await one.open()
    await other.open()
    batches = [[entry(partition=n % 3) for n in range(12)] for _ in range(8)]
    async with asyncio.timeout(30):
        await asyncio.gather(
            *(one.append(batch, {}) for batch in batches),
            *(other.append(batch[::-1], {}) for batch in reversed(batches)),
        )
    rows = await _all(one)
    assert Counter(row.entry.event_id for row in rows) == Counter(
        item.event_id for batch in batches for item in batch
    )
    for shard in range(3):
        assert sorted(row.seq for row in rows if row.shard == shard) == list(range(32))
    await asyncio.gather(one.close(), other.close())


async def test_a_reader_misses_no_row_of_two_writers(
    new_store: Callable[[], EvidenceStore],
) -> None:
    """Paging by cursor while two writers append sees every row once, in the end."""
    one, other = new_store(), new_store()
    await one.open()
    await other.open()
    given = [[entry(partition=n)] for n in (0, 1) for _ in range(40)]
    seen: list[str] = []
    cursor = 0
    writing = asyncio.gather(
        *(one.append(batch, {}) for batch in given[:40]),
        *(other.append(batch, {}) for batch in given[40:]),
    )
    ended = False
    while not ended:
        ended = writing.done()
        page = await one.query(Query(), cursor, 7, MUCH)
        seen += [row.entry.event_id for _, row in page.rows]
        cursor = page.rows[-1][0] if page.rows else cursor
        ended = ended and page.next is None
    await writing
    assert Counter(seen) == Counter(batch[0].event_id for batch in given)
    await asyncio.gather(one.close(), other.close())


async def test_filters(store: EvidenceStore) -> None:
    """Issue 3: by request, wallet, type, time, and by several at once; in the order of arrival."""
    rows = [
        entry(request_id="r1", wallet=WALLET, type="a", timestamp_ms=10),
        entry(request_id="r1", wallet=None, type="b", timestamp_ms=30),
        entry(request_id="r2", wallet=WALLET, type="a", timestamp_ms=20),
    ]
    await store.append(rows, {})
    for query, wanted in (
        (Query(), [0, 1, 2]),
        (Query(request_id="r1"), [0, 1]),
        (Query(wallet=WALLET), [0, 2]),
        (Query(type="a", since_ms=11), [2]),
        (Query(since_ms=10), [0, 1, 2]),
        (Query(since_ms=31), []),
        (Query(request_id="r1", wallet=WALLET, type="a", since_ms=10), [0]),
        (Query(wallet="0x"), []),
    ):
        assert [row.entry for row in await _all(store, query)] == [rows[n] for n in wanted], query


async def test_pages_are_bounded_in_rows_and_bytes(store: EvidenceStore) -> None:
    """Issue 3: paged; records of 650 KB and more do not add up, and one alone is always shown."""
    sizes = [10, 700_000, 700_000, 3_000_000, 10, 10]
    rows = [entry(value=b"x" * size, headers=()) for size in sizes]
    await store.append(rows, {})

    async def pages(limit: int, most: int) -> list[list[int]]:
        found, cursor = [], 0
        while True:
            page = await store.query(Query(), cursor, limit, most)
            found.append([len(row.entry.value) for _, row in page.rows])
            if page.next is None:
                return found
            assert page.next == page.rows[-1][0]
            cursor = page.next

    assert await pages(4, MUCH) == [sizes[:4], sizes[4:]]
    assert await pages(3, MUCH) == [sizes[:3], sizes[3:]]
    assert await pages(6, MUCH) == [sizes]
    assert await pages(6, 1_500_000) == [sizes[:3], [3_000_000], [10, 10]]
    assert await pages(6, 1) == [[size] for size in sizes]


async def _run(store_url: str, statement: str) -> None:
    if store_url.startswith("postgresql"):
        connection = await asyncpg.connect(store_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
        return
    with sqlite3.connect(store_url.removeprefix("sqlite:///")) as file:
        file.execute(statement)


async def test_evidence_is_append_only(store_url: str, store: EvidenceStore) -> None:
    """DESIGN §7: nobody deletes a row, changes what is hashed, or empties a row without a record
    of it; nor is an erased row written again."""
    kept = entry()
    await store.append([kept], {})
    refused = pytest.raises((sqlite3.IntegrityError, asyncpg.PostgresError), match="append-only")
    changes = (
        "DELETE FROM evidence",
        "UPDATE evidence SET leaf_hash = salt",
        "UPDATE evidence SET topic = 'x'",
        'UPDATE evidence SET "offset" = 7',
        "UPDATE evidence SET seq = 7",
        "UPDATE evidence SET event_id = 'x'",
        "UPDATE evidence SET headers = salt",
        "UPDATE evidence SET value = salt",
        "UPDATE evidence SET salt = value",
        "UPDATE evidence SET value = NULL, salt = NULL",
        "UPDATE evidence SET value = NULL, salt = NULL, headers = ''",
        "UPDATE evidence SET erased_by = event_id",
    )
    for statement in changes:
        with refused:
            await _run(store_url, statement)
    await store.erase(erasure(request_id=kept.request_id))
    for statement in (*changes, "UPDATE evidence SET erased_by = NULL, value = leaf_hash"):
        with refused:
            await _run(store_url, statement)


async def test_a_second_start_goes_on(new_store: Callable[[], EvidenceStore]) -> None:
    """DESIGN §7: sequences and offsets go on where they were."""
    first, second = new_store(), new_store()
    await first.open()
    await first.append([entry(), entry()], {HERE: 2})
    await first.close()
    await second.open()
    [row] = await second.append([entry()], {})
    assert row.seq == 2
    assert await second.positions([HERE]) == {HERE: 2}
    await second.close()


async def test_a_store_that_is_not_open_pauses(new_store: Callable[[], EvidenceStore]) -> None:
    """DESIGN §3."""
    with pytest.raises(Pause):
        await new_store().append([entry()], {})


def test_other_urls_are_refused() -> None:
    """Issue 3 item 4."""
    with pytest.raises(SettingsError, match="ASSAY_EVIDENCE__STORE"):
        open_store("sqlite:relative")
