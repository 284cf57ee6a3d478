"""The rows of the three stores, read with plain SQL, not through the services' code."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A row of the ledger; `event_sha256` (hex) and `event_id` are None until it is signed."""

    network: str
    request_id: str
    wallet: str
    score: int
    timestamp_ms: int
    source_event_id: str
    source_sha256: str
    event_id: str | None
    event_sha256: str | None


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """A row of the evidence log; `sha256` (hex, of the value) is None where it was erased."""

    shard: int
    seq: int
    type: str
    topic: str
    partition: int
    offset: int
    sha256: str | None

    @property
    def place(self) -> tuple[str, int, int]:
        return self.topic, self.partition, self.offset


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A row of ingest's request table."""

    request_id: str
    status: str


@dataclass(frozen=True, slots=True)
class Stores:
    """What all three hold."""

    ledger: Sequence[LedgerRow]
    evidence: Sequence[EvidenceRow]
    requests: Sequence[RequestRow]


@dataclass(frozen=True, slots=True)
class StoreUrls:
    """`sqlite:///PATH` or `postgresql://…` of each store, as the services are given them."""

    ledger: str
    evidence: str
    requests: str

    @classmethod
    def under(cls, data: Path) -> StoreUrls:
        """Where `assay up --data` keeps them."""
        names = ("ledger", "evidence", "requests")
        return cls(*(f"sqlite:///{data / name}.sqlite" for name in names))


_LEDGER = (
    "SELECT network, request_id, wallet, score, timestamp_ms, source_event_id, source_sha256,"
    " event_id, event FROM {}"
)
_EVIDENCE = 'SELECT shard, seq, type, topic, partition, "offset", value FROM {}'
_REQUESTS = "SELECT request_id, status FROM {}"
_CONSUMED = "SELECT topic, partition, next_offset FROM {}"


async def read_stores(urls: StoreUrls) -> Stores:
    """All rows; the values themselves are reduced to hashes while reading."""
    ledger = await _rows(urls.ledger, _LEDGER, "entry", "ledger_entry")
    evidence = await _rows(urls.evidence, _EVIDENCE, "evidence", "evidence")
    requests = await _rows(urls.requests, _REQUESTS, "request", "request")
    return Stores(
        ledger=[
            LedgerRow(
                network, request, wallet, score, at, source, made.hex(), event, _sha256(value)
            )
            for network, request, wallet, score, at, source, made, event, value in ledger
        ],
        evidence=[
            EvidenceRow(shard, seq, kind, topic, partition, offset, _sha256(value))
            for shard, seq, kind, topic, partition, offset, value in evidence
        ],
        requests=[RequestRow(request, status) for request, status in requests],
    )


async def evidence_positions(url: str) -> dict[tuple[str, int], int]:
    """The offsets evidence will read next, by topic and partition."""
    rows = await _rows(url, _CONSUMED, "consumed", "evidence_consumed")
    # A stack on topics made anew writes the incarnation's name before the topic's.
    return {(topic.rpartition("/")[2], partition): offset for topic, partition, offset in rows}


def _sha256(value: bytes | None) -> str | None:
    return None if value is None else hashlib.sha256(value).hexdigest()


async def _rows(
    url: str, sql: str, sqlite_table: str, postgres_table: str
) -> list[tuple[Any, ...]]:
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as db:
            return db.execute(sql.format(sqlite_table)).fetchall()
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(sql.format(postgres_table))]
    finally:
        await connection.close()
