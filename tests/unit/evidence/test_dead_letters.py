"""Dead letters in evidence: every failure of a record once (DESIGN §7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from assay.cli.dlq_outgoing import outgoing
from assay.dead_letters import LetterRecord, Place, read_dead_letter
from assay.events import WalletEventSubmitted
from assay_runtime.dead_letters import dead_letter
from assay_runtime.failures import DeadLetter
from assay_runtime.raw_message import RawMessage
from assay_runtime.records import Record
from assay_runtime.retries import original
from services.evidence.domain import DEAD_LETTER, Entry, entry_of
from services.evidence.store import EvidenceStore, Query
from tests.unit.evidence.entries import WALLET, erasure

SUBMITTED = WalletEventSubmitted.type
RECORD = Record(SUBMITTED, 1, 7, 5, None, b'{"address": "' + WALLET.encode() + b'"}', ())
REQUEST = "6f1c8d5e-9a4b-4c3d-8e2f-1a2b3c4d5e6f"
UNKNOWN = ("wallet_unknown", "/evm_data", "no such wallet")


def _failed(record: Record, code: str, pointer: str | None, message: str) -> RawMessage:
    reason = DeadLetter(message, code=code, pointer=pointer, request_id=REQUEST)
    return dead_letter(record, reason, "ingest")


def _kept(letter: RawMessage, offset: int) -> Entry:
    return entry_of(
        letter.topic, 1, offset, 5, letter.headers, letter.value or b"", tenant="default",
        key=letter.key,
    )  # fmt: skip


def _formerly(letter: Entry) -> Entry:
    """As a version kept it that told dead letters by their origin alone."""
    return replace(letter, event_id=letter.former_id or "", former_id=None)


async def _replayed(letter: RawMessage) -> Record:
    place = Place(letter.topic, 1, 0)
    view = read_dead_letter(LetterRecord(place, 5, letter.key, letter.value, letter.headers))

    class _Nowhere:
        async def at(self, place: Place) -> None:
            return None

    sent = await outgoing(view, _Nowhere())
    return original(Record(sent.topic, 1, 0, 9, sent.key, sent.value, sent.headers))


async def _letters(store: EvidenceStore) -> list[Any]:
    page = await store.query(Query(type=DEAD_LETTER), 0, 1_000, 10**9)
    return [row.entry for _, row in page.rows]


@pytest.mark.parametrize(
    "reason",
    [
        ("missing_field", "/evm_data", "no such wallet"),
        ("wallet_unknown", "/address", "no such wallet"),
        ("wallet_unknown", None, "no such wallet"),
    ],
)
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("former", [False, True])
async def test_another_failure_of_a_replayed_record_is_kept(
    store: EvidenceStore, reason: tuple[str, str | None, str], batches: int, former: bool
) -> None:
    """Every record once: a submission without an id is replayed from its first place, and what
    becomes of it then is another dead letter of that place."""
    first = _failed(RECORD, *UNKNOWN)
    again = await _replayed(first)
    assert again[:3] == RECORD[:3]
    one, other = _kept(first, 0), _kept(_failed(again, *reason), 1)
    one = _formerly(one) if former else one
    for batch in [[one, other]] if batches == 1 else [[one], [other]]:
        await store.append(batch, {})
    assert await _letters(store) == [one, other]
    assert await store.append([other, one, _kept(first, 2), replace(other, offset=3)], {}) == []


@pytest.mark.parametrize("former", [False, True])
@pytest.mark.parametrize("erased", [False, True])
async def test_the_same_failure_told_again_is_one(
    store: EvidenceStore, former: bool, erased: bool
) -> None:
    """DESIGN §3: a crash between the letter and the commit writes it twice, perhaps in other
    words; also where an older version kept the first, and where it was erased since."""
    first = _kept(_failed(RECORD, *UNKNOWN), 0)
    await store.append([_formerly(first) if former else first], {})
    if erased:
        assert (await store.erase(erasure(request_id=REQUEST))).rows == 1
    before = await _letters(store)
    told = _kept(_failed(RECORD, *UNKNOWN[:2], "it is unknown after 3 s"), 1)
    assert await store.append([told, _kept(_failed(RECORD, *UNKNOWN), 2)], {}) == []
    assert await _letters(store) == before


async def test_another_failure_of_an_erased_one_is_kept(store: EvidenceStore) -> None:
    """DESIGN §7: what is new after an erasure is kept as usual."""
    await store.append([_kept(_failed(RECORD, *UNKNOWN), 0)], {})
    await store.erase(erasure(request_id=REQUEST))
    other = _kept(_failed(RECORD, "schema", None, "m"), 1)
    [row] = await store.append([other], {})
    assert (row.entry.type, row.entry.value) == (DEAD_LETTER, RECORD.value)


async def test_failures_of_other_places_are_others(store: EvidenceStore) -> None:
    """The same record published twice fails twice."""
    places = [RECORD, RECORD._replace(offset=8), RECORD._replace(partition=2)]
    given = [_kept(_failed(place, *UNKNOWN), n) for n, place in enumerate(places)]
    assert len(await store.append(given, {})) == 3
