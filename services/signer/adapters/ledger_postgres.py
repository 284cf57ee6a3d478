"""The ledger in PostgreSQL, shared by any number of signers.

Signers of one wallet take turns on the wallet's row, locked in one order so that batches cannot
deadlock; two requests of one id under two wallets meet in the primary key instead, and the later
one is planned again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import asyncpg

from assay_runtime.failures import Pause
from assay_runtime.postgres import PostgresPool
from assay_runtime.settings import SettingsError
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

T = TypeVar("T")

_MIGRATIONS = (
    """
    CREATE TABLE ledger_entry (
      network text NOT NULL, request_id text NOT NULL,
      wallet_lower text NOT NULL, wallet text NOT NULL,
      score int NOT NULL, timestamp_ms bigint NOT NULL,
      source_event_id text NOT NULL, source_sha256 bytea NOT NULL,
      body bytea, event_id text, event bytea,
      PRIMARY KEY (network, request_id),
      UNIQUE (network, wallet_lower, timestamp_ms),
      CHECK (lower(wallet) = wallet_lower),
      CHECK ((event IS NULL) = (event_id IS NULL)),
      CHECK ((event IS NULL) <> (body IS NULL)));
    CREATE TABLE ledger_wallet (
      network text NOT NULL, wallet_lower text NOT NULL, last_ms bigint NOT NULL,
      PRIMARY KEY (network, wallet_lower));
    CREATE TABLE ledger_taken_in (
      topic text NOT NULL, partition int NOT NULL, next_offset bigint NOT NULL,
      PRIMARY KEY (topic, partition));
    CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'the ledger forgets nothing'; END $$;
    CREATE TRIGGER ledger_entry_never_deleted BEFORE DELETE ON ledger_entry
      FOR EACH ROW EXECUTE FUNCTION ledger_refuse();
    CREATE TRIGGER ledger_entry_never_changed BEFORE UPDATE ON ledger_entry
      FOR EACH ROW WHEN (OLD.event IS NOT NULL OR NEW.event IS NULL
        OR (OLD.network, OLD.request_id, OLD.wallet, OLD.score, OLD.timestamp_ms,
            OLD.source_event_id, OLD.source_sha256)
        IS DISTINCT FROM (NEW.network, NEW.request_id, NEW.wallet, NEW.score, NEW.timestamp_ms,
            NEW.source_event_id, NEW.source_sha256))
      EXECUTE FUNCTION ledger_refuse();
    CREATE TRIGGER ledger_wallet_never_goes_back BEFORE UPDATE ON ledger_wallet
      FOR EACH ROW WHEN (NEW.last_ms < OLD.last_ms) EXECUTE FUNCTION ledger_refuse();
    """,
)
_TRIES = 5


class PostgresLedger:
    """Ledger in one database."""

    def __init__(self, url: str) -> None:
        self._pool = PostgresPool(url, _MIGRATIONS, "ledger")

    async def open(self) -> None:
        await self._pool.open()
        async with self._pool.connection() as db:
            commits = await db.fetchval("SHOW synchronous_commit")
        if commits == "off":
            await self._pool.close()
            raise SettingsError(
                "ASSAY_SIGNER__LEDGER: the database has synchronous_commit off; a crash could "
                "forget a reservation whose score was signed"
            )

    async def close(self) -> None:
        await self._pool.close()

    async def watch(self) -> None:
        await self._pool.watch()

    async def reserve(self, batch: Sequence[Claim], now_ms: int) -> list[Reservation]:
        async def write(db: Any) -> list[Reservation]:
            last = await _lock_wallets(db, {claim.wallet_key for claim in batch})
            stored = await _entries(db, {claim.request for claim in batch})
            plan = plan_reservations(batch, stored, last, now_ms)
            await _insert(db, plan.entries)
            return plan.reservations

        return await self._write(write)

    async def finish(self, signatures: Sequence[Signature]) -> list[Finished]:
        async def write(db: Any) -> list[Finished]:
            await _finish(db, signatures)
            stored = await _entries(db, {signature.request for signature in signatures})
            return [finished_in(stored, signature.request) for signature in signatures]

        return await self._write(write)

    async def get(self, request: RequestKey) -> Entry | None:
        async with self._pool.connection() as db:
            entries = await _entries(db, {request})
        return entries.get(request)

    async def positions(self, topic: str) -> dict[int, int]:
        async with self._pool.connection() as db:
            rows = await db.fetch(
                "SELECT partition, next_offset FROM ledger_taken_in WHERE topic = $1", topic
            )
        return dict(rows)

    async def adopt(
        self, events: Sequence[AdoptedEvent], topic: str, positions: Mapping[int, int]
    ) -> Adoption:
        async def write(db: Any) -> Adoption:
            await _lock_wallets(db, {event.wallet_key for event in events})
            stored = await _entries(db, {event.request for event in events})
            occupied = await _occupied(db, {event.moment for event in events})
            adoption = plan_adoption(events, stored, occupied)
            await _insert(db, adoption.new)
            await _finish(
                db,
                [Signature(e.request, e.event_id or "", e.event or b"") for e in adoption.finished],
            )
            await db.executemany(
                "INSERT INTO ledger_taken_in VALUES ($1, $2, $3) ON CONFLICT (topic, partition)"
                " DO UPDATE SET next_offset ="
                " greatest(ledger_taken_in.next_offset, excluded.next_offset)",
                [(topic, partition, offset) for partition, offset in sorted(positions.items())],
            )
            return adoption

        return await self._write(write)

    async def _write(self, function: Callable[[Any], Awaitable[T]]) -> T:
        """`function` in one transaction; again where another signer came first, because then it
        finds what that one left."""
        reason: Exception | None = None
        for attempt in range(_TRIES):
            try:
                async with self._pool.transaction() as db:
                    return await function(db)
            except asyncpg.UniqueViolationError as error:
                reason = error
            except Pause as outage:
                # A deadlock or a failed serialisation is over already; other outages are not.
                if not isinstance(outage.__cause__, asyncpg.TransactionRollbackError):
                    raise
                reason = outage
            await asyncio.sleep(0.01 * attempt)
        raise Pause("ledger", f"PostgreSQL: contention does not end: {reason}")


async def _lock_wallets(db: Any, wallets: Collection[WalletKey]) -> dict[WalletKey, int]:
    """Lock the wallets' rows in one order for all; their last timestamps where they have one."""
    columns = _transposed(sorted(wallets), 2)
    await db.execute(
        "INSERT INTO ledger_wallet SELECT n, w, -1 FROM unnest($1::text[], $2::text[]) AS k (n, w)"
        " ORDER BY n, w ON CONFLICT DO NOTHING",
        *columns,
    )
    rows = await db.fetch(
        "SELECT network, wallet_lower, last_ms FROM ledger_wallet"
        " WHERE (network, wallet_lower) IN (SELECT * FROM unnest($1::text[], $2::text[]))"
        " ORDER BY network, wallet_lower FOR UPDATE",
        *columns,
    )
    return {WalletKey(row[0], row[1]): row[2] for row in rows}


async def _insert(db: Any, entries: Sequence[Entry]) -> None:
    await db.executemany(
        f"INSERT INTO ledger_entry ({COLUMNS})"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        [row_of(entry) for entry in entries],
    )
    last: dict[WalletKey, int] = {}
    for entry in entries:
        last[entry.wallet_key] = max(entry.timestamp_ms, last.get(entry.wallet_key, -1))
    await db.executemany(
        "UPDATE ledger_wallet SET last_ms = greatest(last_ms, $3)"
        " WHERE network = $1 AND wallet_lower = $2",
        [(*key, timestamp_ms) for key, timestamp_ms in sorted(last.items())],
    )


async def _finish(db: Any, signatures: Sequence[Signature]) -> None:
    await db.executemany(
        "UPDATE ledger_entry SET event_id = $3, event = $4, body = NULL"
        " WHERE network = $1 AND request_id = $2 AND event IS NULL",
        sorted((*s.request, s.event_id, s.event) for s in signatures),
    )


async def _entries(db: Any, wanted: Collection[RequestKey]) -> dict[RequestKey, Entry]:
    rows = await db.fetch(
        f"SELECT {COLUMNS} FROM ledger_entry"
        " WHERE (network, request_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))",
        *_transposed(sorted(wanted), 2),
    )
    return {entry.request: entry for entry in map(entry_of, rows)}


async def _occupied(
    db: Any, wanted: Collection[tuple[WalletKey, int]]
) -> dict[tuple[WalletKey, int], Entry]:
    rows = await db.fetch(
        f"SELECT {COLUMNS} FROM ledger_entry"
        " WHERE (network, wallet_lower, timestamp_ms) IN"
        " (SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]))",
        *_transposed(sorted((*key, timestamp_ms) for key, timestamp_ms in wanted), 3),
    )
    entries = map(entry_of, rows)
    return {(entry.wallet_key, entry.timestamp_ms): entry for entry in entries}


def _transposed(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [[row[column] for row in rows] for column in range(width)]
