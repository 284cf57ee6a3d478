"""The ledger in one SQLite file, shared by the processes of one machine.

INTEGER is a signed 64-bit number: timestamps in milliseconds and scores fit with room to spare.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from assay_runtime.sqlite import SqliteFile
from services.signer.adapters.ledger_rows import COLUMNS, entry_of, finished_in, row_of
from services.signer.domain.ports import Signature
from services.signer.domain.reconciliation import AdoptedEvent, Adoption, plan_adoption
from services.signer.domain.reservation import (
    Claim,
    Entry,
    Finished,
    RequestKey,
    Reservation,
    WalletKey,
    plan_reservations,
)

_MIGRATIONS = (
    """
    CREATE TABLE entry (
      network TEXT NOT NULL, request_id TEXT NOT NULL,
      wallet_lower TEXT NOT NULL, wallet TEXT NOT NULL,
      score INTEGER NOT NULL, timestamp_ms INTEGER NOT NULL,
      source_event_id TEXT NOT NULL, source_sha256 BLOB NOT NULL,
      body BLOB, event_id TEXT, event BLOB,
      PRIMARY KEY (network, request_id),
      UNIQUE (network, wallet_lower, timestamp_ms),
      CHECK (lower(wallet) = wallet_lower),
      CHECK ((event IS NULL) = (event_id IS NULL)),
      CHECK ((event IS NULL) <> (body IS NULL)));
    CREATE TABLE wallet (
      network TEXT NOT NULL, wallet_lower TEXT NOT NULL, last_ms INTEGER NOT NULL,
      PRIMARY KEY (network, wallet_lower)) WITHOUT ROWID;
    CREATE TABLE taken_in (
      topic TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
      PRIMARY KEY (topic, partition)) WITHOUT ROWID;
    """,
    """
    CREATE TRIGGER entry_never_deleted BEFORE DELETE ON entry
      BEGIN SELECT RAISE(ABORT, 'the ledger forgets nothing'); END
    """,
    """
    CREATE TRIGGER entry_never_changed BEFORE UPDATE ON entry
      WHEN OLD.event IS NOT NULL OR NEW.event IS NULL
        OR (OLD.network, OLD.request_id, OLD.wallet, OLD.score, OLD.timestamp_ms,
            OLD.source_event_id, OLD.source_sha256)
        IS NOT (NEW.network, NEW.request_id, NEW.wallet, NEW.score, NEW.timestamp_ms,
            NEW.source_event_id, NEW.source_sha256)
      BEGIN SELECT RAISE(ABORT, 'an entry changes once, from reserved to signed'); END
    """,
    """
    CREATE TRIGGER wallet_never_goes_back BEFORE UPDATE ON wallet
      WHEN NEW.last_ms < OLD.last_ms
      BEGIN SELECT RAISE(ABORT, 'a wallet''s timestamps only grow'); END
    """,
)
_INSERT = f"INSERT INTO entry ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_FINISH = (
    "UPDATE entry SET event_id = ?, event = ?, body = NULL"
    " WHERE network = ? AND request_id = ? AND event IS NULL"
)
_ADVANCE = (
    "INSERT INTO wallet VALUES (?, ?, ?) ON CONFLICT (network, wallet_lower)"
    " DO UPDATE SET last_ms = max(last_ms, excluded.last_ms)"
)


class SqliteLedger:
    """Ledger in one file; processes take turns (BEGIN IMMEDIATE), all on one thread each."""

    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(path, _MIGRATIONS, "ledger")

    async def open(self) -> None:
        await self._file.open()

    async def close(self) -> None:
        await self._file.close()

    async def reserve(self, batch: Sequence[Claim], now_ms: int) -> list[Reservation]:
        def write(db: sqlite3.Connection) -> list[Reservation]:
            stored = _entries(db, {claim.request for claim in batch})
            last = _last_ms(db, {claim.wallet_key for claim in batch})
            plan = plan_reservations(batch, stored, last, now_ms)
            _insert(db, plan.entries)
            return plan.reservations

        return await self._file.write(write)

    async def finish(self, signatures: Sequence[Signature]) -> list[Finished]:
        def write(db: sqlite3.Connection) -> list[Finished]:
            db.executemany(_FINISH, [(s.event_id, s.event, *s.request) for s in signatures])
            stored = _entries(db, {signature.request for signature in signatures})
            return [finished_in(stored, signature.request) for signature in signatures]

        return await self._file.write(write)

    async def get(self, request: RequestKey) -> Entry | None:
        entries = await self._file.read(lambda db: _entries(db, {request}))
        return entries.get(request)

    async def positions(self, topic: str) -> dict[int, int]:
        rows = await self._file.read(
            lambda db: db.execute(
                "SELECT partition, next_offset FROM taken_in WHERE topic = ?", (topic,)
            ).fetchall()
        )
        return dict(rows)

    async def adopt(
        self, events: Sequence[AdoptedEvent], topic: str, positions: Mapping[int, int]
    ) -> Adoption:
        def write(db: sqlite3.Connection) -> Adoption:
            stored = _entries(db, {event.request for event in events})
            occupied = _occupied(db, {event.moment for event in events})
            adoption = plan_adoption(events, stored, occupied)
            _insert(db, adoption.new)
            db.executemany(_FINISH, [(e.event_id, e.event, *e.request) for e in adoption.finished])
            db.executemany(
                "INSERT INTO taken_in VALUES (?, ?, ?) ON CONFLICT (topic, partition)"
                " DO UPDATE SET next_offset = max(next_offset, excluded.next_offset)",
                [(topic, partition, offset) for partition, offset in positions.items()],
            )
            return adoption

        return await self._file.write(write)


def _insert(db: sqlite3.Connection, entries: Sequence[Entry]) -> None:
    db.executemany(_INSERT, [row_of(entry) for entry in entries])
    db.executemany(_ADVANCE, [(*entry.wallet_key, entry.timestamp_ms) for entry in entries])


def _entries(db: sqlite3.Connection, wanted: Collection[RequestKey]) -> dict[RequestKey, Entry]:
    sql = f"SELECT {COLUMNS} FROM entry WHERE network = ? AND request_id = ?"
    found = {key: db.execute(sql, key).fetchone() for key in wanted}
    return {key: entry_of(row) for key, row in found.items() if row is not None}


def _last_ms(db: sqlite3.Connection, wanted: Collection[WalletKey]) -> dict[WalletKey, int]:
    sql = "SELECT last_ms FROM wallet WHERE network = ? AND wallet_lower = ?"
    found = {key: db.execute(sql, key).fetchone() for key in wanted}
    return {key: row[0] for key, row in found.items() if row is not None}


def _occupied(
    db: sqlite3.Connection, wanted: Collection[tuple[WalletKey, int]]
) -> dict[tuple[WalletKey, int], Entry]:
    sql = f"SELECT {COLUMNS} FROM entry WHERE network = ? AND wallet_lower = ? AND timestamp_ms = ?"
    found = {place: db.execute(sql, (*place[0], place[1])).fetchone() for place in wanted}
    return {place: entry_of(row) for place, row in found.items() if row is not None}
