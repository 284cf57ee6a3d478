"""Submissions are kept under the wallet that ingest scores, whatever their publisher left out
(DESIGN §7)."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.envelope import STRUCTURED, Headers
from assay.events import WalletEventAccepted, WalletEventSubmitted
from assay_runtime.records import Record
from services.evidence.adapters import (
    evidence_rows,
    older_rows_postgres,
    older_rows_sqlite,
)
from services.evidence.domain import CONFLICT, DEAD_LETTER, Entry, entry_of
from services.evidence.domain.named_wallets import named_wallet
from services.evidence.store import EvidenceStore, Query
from services.ingest.domain.strict_json import JsonLimits
from services.ingest.domain.submission import parse_submission
from services.ingest.handler import submitted_bytes
from tests.unit.evidence.entries import WALLET, entry, erasure

SUBMITTED, ACCEPTED = WalletEventSubmitted.type, WalletEventAccepted.type
LETTERS = f"{SUBMITTED}.ingest.dlq"
OTHER = "0x" + "6b" * 20
CHECKSUMMED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
QUESTIONS = [{"question": "Your name?", "answer": "Jane of the secret"}]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(WALLET),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("address"), inner)
    ),
    max_leaves=8,
)
WRAPPED = (("content-type", STRUCTURED.encode()),)


def _value(address: Any = WALLET, **beside: Any) -> bytes:
    return json.dumps({"questionnaire": QUESTIONS, "address": address, **beside}).encode()


def _kept(
    value: bytes, headers: Headers = (), topic: str = SUBMITTED, key: bytes | None = None,
    offset: int = 7,
) -> Entry:  # fmt: skip
    return entry_of(topic, 1, offset, 5, headers, value, tenant="default", key=key)


def _formerly(made: Entry, wallet: str | None = None) -> Entry:
    """As a version kept it that did not read the value."""
    return replace(made, wallet=wallet)


def _accepted(submission: Entry, wallet: str = WALLET) -> Entry:
    """What ingest made of it."""
    return entry(request_id=submission.request_id, type=ACCEPTED, topic=ACCEPTED, wallet=wallet)


async def _values(store: EvidenceStore, query: Query | None = None) -> list[bytes]:
    page = await store.query(query or Query(), 0, 10_000, 10**9)
    return [row.entry.value for _, row in page.rows]


@pytest.mark.parametrize("topic", [SUBMITTED, LETTERS])
@pytest.mark.parametrize(
    ("value", "headers", "wallet"),
    [
        (_value(), (), WALLET),
        (_value(CHECKSUMMED), (), CHECKSUMMED.lower()),
        (b"\xef\xbb\xbf \n" + _value(), (), WALLET),
        (_value(evm_data={"wallet": OTHER, "address": OTHER}), (), WALLET),
        (json.dumps({"data": {"address": WALLET}}).encode(), WRAPPED, WALLET),
        (_value(OTHER, data={"address": WALLET}), WRAPPED, WALLET),
        (_value(WALLET, data={"address": OTHER}), (), WALLET),
    ],
)
def test_the_wallet_is_the_one_that_is_scored(
    topic: str, value: bytes, headers: Headers, wallet: str
) -> None:
    """DESIGN §7: an erasure of that wallet must reach what was submitted, and its dead letter,
    whoever the publisher says that it is about."""
    elsewhere = (*headers, ("ce_subject", OTHER.encode()))
    assert _kept(value, headers, topic).wallet == wallet
    assert _kept(value, elsewhere, topic, key=OTHER.encode()).wallet == wallet


@pytest.mark.parametrize(
    "value",
    [
        b'{"evm_data": {"n": ' + b"9" * 10_000 + b'}, "address": "' + WALLET.encode() + b'"}',
        b'{"address": null, "address": "' + WALLET.encode() + b'"}',
        b'{"address": "' + WALLET.encode() + b'", "questionnaire": [{"question',
        b'{"answer": "\xff\x00\n", "address": "' + WALLET.encode() + b'"}',
        b'{"address": "' + WALLET.encode() + b'", "x": ' + b"[" * 100_000,
        b'{"address": " ' + WALLET.upper().encode() + b'\\n"}',
        _value().decode().encode("utf-16"),
        json.dumps({"data": {"address": WALLET}}).encode(),
        json.dumps({"data": dict.fromkeys(map(str, range(99))) | {"address": WALLET}}).encode(),
        json.dumps({"data": {"address": WALLET}} | dict.fromkeys(map(str, range(99)))).encode()[
            :-1
        ],
    ],
)
def test_what_ingest_refuses_may_name_a_wallet_too(value: bytes) -> None:
    """The text of a dead letter is somebody's as well."""
    assert named_wallet((), value) == WALLET


@pytest.mark.parametrize(
    "value",
    [
        b"", b"\xff", b"{", b"[]", b'"address"', b"{" + b'"a":{' * 100_000, b"[" * 100_000,
        b'{"x": ' + b"[" * 100_000, b'{"address"', b'{"address" "0x"}', b'{"address":}', b"{1: 2}",
        b'{"address": "' + WALLET.encode(), b'{"address": ["' + WALLET.encode() + b'"]}',
        _value("nobody"), _value(7), _value(None), _value(data=[{"address": WALLET}], address=1),
        json.dumps({"evm_data": {"address": WALLET}}).encode(),
        json.dumps({"questionnaire": f'"address": "{WALLET}"'}).encode(),
    ],
)  # fmt: skip
def test_a_value_that_names_none_leaves_it_to_subject_and_key(value: bytes) -> None:
    """X.4: hostile bytes cost nothing but the reading."""
    assert named_wallet((), value) is None
    assert named_wallet(WRAPPED, value) is None
    assert _kept(value, key=OTHER.encode()).wallet == OTHER
    assert _kept(value, (("ce_subject", OTHER.encode()),)).wallet == OTHER


@given(
    st.dictionaries(st.text(max_size=8), _JSON, max_size=90),
    st.dictionaries(st.sampled_from(["data", "address", "evm_data"]), _JSON),
    st.sampled_from([WALLET, CHECKSUMMED, OTHER]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_what_ingest_accepts_is_kept_under_the_wallet_it_accepts(
    junk: dict[str, Any], data: dict[str, Any], address: str, wrapped: bool, shuffled: Random
) -> None:
    """Evidence and ingest read an address alike, in whatever place it stands."""
    submission = {**junk, "address": address, "data": data, "questionnaire": [], "evm_data": None}
    event = {**data, **junk, "specversion": "1.0", "id": "1", "source": "/a", "type": "t"}
    document = event | {"data": submission} if wrapped else submission
    members = list(document.items())
    shuffled.shuffle(members)
    value = b"\xef\xbb\xbf" + json.dumps(dict(members)).encode()
    headers = WRAPPED if wrapped else ()
    limits = JsonLimits()
    read = submitted_bytes(Record(SUBMITTED, 0, 0, 0, None, value, headers), limits)
    assert named_wallet(headers, value) == parse_submission(read, limits).key == address.lower()


def test_other_topics_are_not_read() -> None:
    """Services set the subject; what a client writes into a value of theirs says nothing."""
    assert _kept(_value(), topic=ACCEPTED).wallet is None


async def test_an_erasure_reaches_a_submission_without_subject_and_key(
    store: EvidenceStore,
) -> None:
    """DESIGN §7: the questionnaire and its dead letter go with the wallet; pages show them."""
    given = [_kept(_value()), _kept(_value(), topic=LETTERS), _kept(_value(OTHER))]
    await store.append(given, {})
    assert await _values(store, Query(wallet=WALLET)) == [given[0].value, given[1].value]
    assert await store.erasable(erasure(wallet=WALLET)) == 2
    assert (await store.erase(erasure(wallet=WALLET))).rows == 2
    assert (await _values(store))[:3] == [b"", b"", given[2].value]


@pytest.mark.parametrize("former", [None, OTHER])
@pytest.mark.parametrize("erased", [False, True])
async def test_what_was_kept_under_no_wallet_is_still_kept(
    store: EvidenceStore, former: str | None, erased: bool
) -> None:
    """DESIGN §3: a redelivery of what an older version kept adds nothing, erased or not."""
    given = [_kept(_value()), _kept(_value(), topic=LETTERS)]
    await store.append([_formerly(one, former) for one in given], {})
    if erased:
        for one in given:
            await store.erase(erasure(request_id=one.request_id or ""))
    before = await _values(store)
    again = [replace(one, offset=99, timestamp_ms=9) for one in given]
    assert await store.append([*given, *again], {}) == []
    assert await _values(store) == before


async def test_a_place_that_was_kept_under_no_wallet_is_still_kept(store: EvidenceStore) -> None:
    """DESIGN §2: also where it is offered again with the id that its place gave it."""
    first = _kept(_value())
    await store.append([_formerly(first)], {})
    named = (("ce_id", (first.request_id or "").encode()), ("ce_source", b"/anonymous"))
    assert await store.append([_kept(_value(), named, offset=8)], {}) == []


async def test_another_wallet_under_the_same_id_is_another_record(store: EvidenceStore) -> None:
    """X.3: who says of the same bytes that they are of another wallet takes nothing away."""
    value = json.dumps({"specversion": "1.0", "id": "1", "source": "/a", "type": "t",
                        "address": WALLET, "data": {"address": OTHER}}).encode()  # fmt: skip
    wrapped, plain = _kept(value, WRAPPED), _kept(value, (("ce_id", b"1"), ("ce_source", b"/a")))
    assert (wrapped.event_id, wrapped.wallet, plain.wallet) == (plain.event_id, OTHER, WALLET)
    await store.append([_formerly(wrapped)], {})
    [second] = await store.append([plain], {})
    assert (second.entry.type, second.entry.wallet) == (CONFLICT, WALLET)
    assert await store.append([plain, wrapped], {}) == []


async def test_an_erasure_reaches_what_an_older_version_kept(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN §7: through the requests that other rows of the wallet name, in parts."""
    assert evidence_rows.LOOK_UP > 2
    for module in (evidence_rows, older_rows_sqlite, older_rows_postgres):
        monkeypatch.setattr(module, "LOOK_UP", 2)
    old = [_kept(_value(), offset=n) for n in range(5)]
    letter = replace(_kept(_value(), topic=LETTERS), request_id=old[0].request_id)
    misled = _kept(_value(evm_data={}), offset=9)
    stored = [*map(_formerly, [*old, letter]), _formerly(misled, OTHER)]
    await store.append([*stored, *map(_accepted, [*old, *old, misled])], {})
    assert letter.type == DEAD_LETTER
    assert await store.erasable(erasure(wallet=WALLET)) == 18
    done = await store.erase(erasure(wallet=WALLET))
    assert (done.rows, len(set(done.records))) == (18, len(done.records))
    assert (await _values(store))[:7] == [b""] * 7
    assert await store.erasable(erasure(wallet=WALLET)) == 0
    assert (await store.erase(erasure(wallet=WALLET))).rows == 0
    # Also once the other rows are gone already.
    late = _kept(_value(evm_data={"n": 1}), offset=10)
    await store.append([_accepted(late)], {})
    await store.erase(erasure(wallet=WALLET))
    await store.append([_formerly(late)], {})
    assert (await store.erase(erasure(wallet=WALLET))).rows == 1


async def test_nobody_can_have_anothers_rows_erased(store: EvidenceStore) -> None:
    """X.3: who copies a request's id, or had it accepted first, is erased alone: an older row goes
    only where its own text names the wallet."""
    ours = _kept(_value(OTHER), (("ce_id", b"1"), ("ce_source", b"/a")))
    theirs = _kept(_value(), (("ce_id", b"1"), ("ce_source", b"/a")), offset=8)
    assert theirs.request_id == ours.request_id
    unread = replace(_kept(b"no json", offset=9), request_id=ours.request_id)
    asked = replace(entry(request_id=ours.request_id, type="x", topic="x", value=_value()))
    rows = [_formerly(ours), unread, replace(asked, wallet=None), theirs, _accepted(theirs)]
    await store.append(rows, {})
    assert await store.erasable(erasure(wallet=WALLET)) == 2
    assert (await store.erase(erasure(wallet=WALLET))).rows == 2
    kept = (await _values(store))[:5]
    assert kept == [ours.value, unread.value, asked.value, b"", b""]
