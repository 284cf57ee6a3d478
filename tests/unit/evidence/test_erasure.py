"""Erasure: text and salt go, hash, place and the fact stay (issue 5 point 4, DESIGN §7)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay_runtime.records import Position
from services.evidence.access import Access
from services.evidence.adapters import evidence_rows
from services.evidence.domain import CONFLICT, leaf_hash
from services.evidence.domain.erasure import ERASURE, ERASURE_PLACE
from services.evidence.pages import build_pages
from services.evidence.store import EvidenceStore, Query
from tests.unit.evidence.entries import WALLET, entry, erasure

MUCH = 10**9
OTHER = "0x" + "6b" * 20
SECRET = b'{"said": "the secret of jane@shop.example"}'
HERE = Position("wallet.score.signed.v1", 0)


async def _rows(store: EvidenceStore, query: Query | None = None) -> list[Any]:
    return [row for _, row in (await store.query(query or Query(), 0, 10_000, MUCH)).rows]


async def test_a_request_is_erased_and_its_hashes_stay(store: EvidenceStore) -> None:
    """DESIGN §7: value, salt and headers go; hash, place, type and the fact of erasure stay."""
    gone = [entry(request_id="r1", value=SECRET, partition=shard) for shard in (0, 0, 2)]
    kept = entry(request_id="r2", value=SECRET)
    before = await store.append([*gone, kept], {})
    assert await store.erasable(erasure(request_id="r1")) == 3
    done = await store.erase(erasure(request_id="r1"))
    assert (done.rows, len(done.records)) == (3, 2)
    after = await _rows(store)
    for old, new in zip(before[:3], after, strict=False):
        assert (new.entry.value, new.entry.headers, new.salt) == (b"", (), b"")
        assert (new.leaf_hash, new.shard, new.seq) == (old.leaf_hash, old.shard, old.seq)
        assert new.entry.event_id == old.entry.event_id
        assert new.erased_by in done.records
    assert after[3].entry == kept
    facts = {row.entry.event_id: row for row in after[4:]}
    assert set(facts) == set(done.records)
    for fact in facts.values():
        assert (fact.entry.type, fact.entry.topic) == (ERASURE, ERASURE_PLACE)
        assert fact.leaf_hash == leaf_hash(fact.entry, fact.salt, fact.header_data)
    said = [json.loads(row.entry.value) for row in facts.values()]
    assert {(f["actor"], f["reason"], f["at_ms"]) for f in said} == {
        ("clerk", "asked by its owner", 1_790_000_100_000)
    }
    named = {item["leaf_hash"] for fact in said for item in fact["erased"]}
    assert named == {row.leaf_hash.hex() for row in before[:3]}
    # Sequences go on without a gap, and the records of erasure count in them.
    assert sorted(row.seq for row in after if row.shard == 0) == [0, 1, 2, 3]
    assert sorted(row.seq for row in after if row.shard == 2) == [0, 1]


async def test_a_wallet_is_erased_in_parts(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wallet of more rows than one transaction takes; others' rows stay."""
    monkeypatch.setattr(f"{type(store).__module__}.ERASE_AT_ONCE", 3)
    assert evidence_rows.ERASE_AT_ONCE > 3
    mine = [entry(wallet=WALLET, value=SECRET) for _ in range(8)]
    theirs = [entry(wallet=OTHER, value=SECRET), entry(wallet=None, value=SECRET)]
    await store.append([*mine, *theirs], {})
    done = await store.erase(erasure(wallet=WALLET))
    assert (done.rows, len(done.records)) == (8, 3)
    rows = await _rows(store)
    assert [row.entry.value for row in rows if row.entry.wallet != WALLET] == [SECRET] * 2
    assert all(not row.entry.value for row in rows if row.entry.event_id in
               {item.event_id for item in mine})  # fmt: skip
    again = await store.erase(erasure(wallet=WALLET))
    assert (again.rows, again.records) == (0, ())


async def test_reading_the_topic_again_brings_nothing_back(
    new_store: Callable[[], EvidenceStore],
) -> None:
    """Issue 5: an erased event read again, in another batch, with its conflicts, after a restart,
    stays erased; the offsets go on."""
    first = entry(request_id="r", value=SECRET)
    other = entry(event_id=first.event_id, request_id="r", value=SECRET + b" ")
    store = new_store()
    await store.open()
    rows = await store.append([first, other], {HERE: 2})
    assert rows[1].entry.type == CONFLICT
    assert (await store.erase(erasure(request_id="r"))).rows == 2
    await store.close()
    store = new_store()
    await store.open()
    assert await store.append([first, other, entry(request_id="new")], {HERE: 9}) != []
    found = await _rows(store, Query(request_id="r"))
    assert all(row.entry.value == b"" for row in found if row.entry.type != ERASURE)
    assert len(found) == 3
    assert await store.positions([HERE]) == {HERE: 9}
    await store.close()


async def test_the_text_is_gone_from_the_file(tmp_path: Path) -> None:
    """DESIGN §7: neither a free page nor the write-ahead log of SQLite still holds it, for texts
    within a page and over many."""
    from services.evidence.app import open_store

    store = open_store(f"sqlite:///{tmp_path}/e.sqlite")
    await store.open()
    marks = [b"secret-one", b"secret-two"]
    await store.append(
        [entry(request_id="r", value=marks[0], headers=(("h", b"secret-three"),)),
         entry(request_id="r", value=marks[1] * 5_000), entry(request_id="s", value=b"stays")],
        {},
    )  # fmt: skip

    def held(mark: bytes) -> bool:
        return any(mark in file.read_bytes() for file in tmp_path.iterdir())

    assert all(held(mark) for mark in marks)
    await store.erase(erasure(request_id="r"))
    assert not any(held(mark) for mark in [*marks, b"secret-three"])
    assert held(b"stays")
    await store.close()


def _client(store: EvidenceStore, token: str = "eraser") -> httpx.AsyncClient:
    access = Access(full_text="open", erasure="eraser")
    transport = httpx.ASGITransport(build_pages(store, access), raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(transport=transport, base_url="http://e", headers=headers)


async def test_the_page_erases_and_shows_what_was_erased(store: EvidenceStore) -> None:
    """Issue 5: a dry run counts; then pages say `erased`, when, by whom and why, redacted."""
    await store.append([entry(request_id="r", wallet=WALLET, value=SECRET)], {})
    client = _client(store)
    body = {"wallet": WALLET.upper().replace("0X", "0x"), "reason": "asked by jane@shop.example",
            "actor": "clerk"}  # fmt: skip
    tried = await client.post("/erasures", json={**body, "dry_run": True})
    assert tried.json() == {"rows": 1, "records": [], "dry_run": True}
    done = (await client.post("/erasures", json=body)).json()
    assert (done["rows"], done["dry_run"]) == (1, False)
    items = (await client.get("/evidence")).json()["items"]
    erased = items[0]["erased"]
    assert (erased["record"], erased["actor"]) == (done["records"][0], "clerk")
    assert erased["reason"] == "asked by [EMAIL]"
    assert (items[0]["value_sha256"], "payload" in items[0]) == (None, False)
    assert len(items[0]["leaf_hash"]) == 64
    assert items[1]["type"] == ERASURE
    full = await client.get("/evidence?full=true", headers={"authorization": "Bearer open"})
    assert full.json()["items"][0]["erased"]["reason"] == body["reason"]


@pytest.mark.parametrize(
    ("token", "status", "code"),
    [("", 401, "unauthorized"), ("wrong", 401, "unauthorized"), ("open", 403, "forbidden")],
)
async def test_only_the_erasure_token_erases(
    store: EvidenceStore, token: str, status: int, code: str
) -> None:
    """DESIGN §7: who may read full text may not destroy it."""
    await store.append([entry(request_id="r", value=SECRET)], {})
    answer = await _client(store, token).post("/erasures", json={"request_id": "r", "reason": "x"})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert await store.erasable(erasure(request_id="r")) == 1
    closed = httpx.ASGITransport(build_pages(store, Access()))
    async with httpx.AsyncClient(transport=closed, base_url="http://e") as client:
        answer = await client.post("/erasures", json={"request_id": "r", "reason": "x"})
    assert (answer.status_code, answer.json()["code"]) == (403, "not_available")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ("no json", "/"),
        ([], "/"),
        ({"reason": "x"}, "/request_id"),
        ({"request_id": "r", "wallet": WALLET, "reason": "x"}, "/request_id"),
        ({"request_id": "r"}, "/reason"),
        ({"request_id": "r", "reason": " "}, "/reason"),
        ({"request_id": "r", "reason": "x" * 501}, "/reason"),
        ({"request_id": "r", "reason": "a\x00b"}, "/reason"),
        ({"request_id": "r", "reason": "x", "dry_run": "no"}, "/dry_run"),
        ({"request_id": "r", "reason": "x", "colour": "red"}, "/"),
        ({"wallet": "0x12", "reason": "x"}, "/wallet"),
        ({"request_id": "r", "reason": "x" * 20_000}, "/"),
    ],
)
async def test_what_cannot_be_asked(store: EvidenceStore, body: Any, pointer: str) -> None:
    """X.4: the mistake is named, and nothing is erased."""
    await store.append([entry(request_id="r", value=SECRET)], {})
    content = body if isinstance(body, str) else json.dumps(body)
    answer = await _client(store).post("/erasures", content=content)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, pointer)
    assert await store.erasable(erasure(request_id="r")) == 1
