"""The checker's own SQL reads what the services wrote, in SQLite and in PostgreSQL."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from assay_runtime.records import Position
from services.evidence.app import open_store as open_evidence
from services.evidence.domain import Entry as EvidenceEntry
from services.ingest.app import open_store as open_requests
from services.ingest.store import Ending
from services.signer.app import open_ledger
from services.signer.domain.ports import Signature
from services.signer.domain.reservation import Claim
from tests.fault.stores import LedgerRow, RequestRow, StoreUrls, evidence_positions, read_stores

WALLET = "0x00000000000000000000000000000000000000Aa"
TOPIC = "wallet.score.signed.v1"


def sha256(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def claim(request_id: str) -> Claim:
    return Claim("test", request_id, WALLET, 500, f"source-{request_id}", b"\x01" * 32, b"{}")


async def written_and_read(urls: StoreUrls) -> None:
    ledger, evidence = open_ledger(urls.ledger), open_evidence(urls.evidence)
    requests = open_requests(urls.requests)
    for store in (ledger, evidence, requests):
        await store.open()
    try:
        signed, reserved = claim("a"), claim("b")
        await ledger.reserve([signed, reserved], now_ms=1_000)
        await ledger.finish([Signature(signed.request, "event-a", b"signed bytes")])
        entry = EvidenceEntry("event-a", TOPIC, "a", None, 5, TOPIC, 2, 7, (), b"signed bytes")
        await evidence.append([entry], {Position(f"embedded-1/{TOPIC}", 2): 8})
        await requests.accept("a", "content", b"{}", 1)
        await requests.conclude([Ending("a", "signed", b"{}")], 2)
        await requests.announce("b", "content", 3)
        found = await read_stores(urls)
        positions = await evidence_positions(urls.evidence)
    finally:
        for store in (ledger, evidence, requests):
            await store.close()
    common = ("test", "a", WALLET, 500, 1_000, "source-a", "01" * 32)
    rows = {row.request_id: row for row in found.ledger}
    assert rows["a"] == LedgerRow(*common, "event-a", sha256(b"signed bytes"))
    assert (rows["b"].event_id, rows["b"].event_sha256) == (None, None)
    assert [row.place for row in found.evidence] == [(TOPIC, 2, 7)]
    assert found.evidence[0].sha256 == sha256(b"signed bytes")
    assert sorted(found.requests, key=lambda row: row.request_id) == [
        RequestRow("a", "signed"),
        RequestRow("b", "pending"),
    ]
    assert positions == {(TOPIC, 2): 8}


async def test_sqlite(tmp_path: Path) -> None:
    """Issue 3, item 4: the embedded stack's stores."""
    await written_and_read(StoreUrls.under(tmp_path))


@pytest.mark.postgres
async def test_postgres(postgres_url: str) -> None:
    """Issue 3, item 4: production's, here in one database."""
    await written_and_read(StoreUrls(postgres_url, postgres_url, postgres_url))
