"""Evidence in PostgreSQL."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from assay_runtime.postgres import PostgresPool
from assay_runtime.records import Position
from services.evidence.adapters.evidence_rows import values_of
from services.evidence.domain import (
    SALT_BYTES,
    Entry,
    Row,
    disputed,
    plan,
    read_header_bytes,
)
from services.evidence.store import Page, Query, page_of

_MIGRATIONS = (
    """
    CREATE TABLE evidence (
      id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      shard int NOT NULL, seq bigint NOT NULL,
      event_id text NOT NULL UNIQUE, type text NOT NULL,
      request_id text, wallet text, timestamp_ms bigint NOT NULL,
      topic text NOT NULL, partition int NOT NULL, "offset" bigint NOT NULL,
      headers bytea NOT NULL, salt bytea, value bytea, leaf_hash bytea NOT NULL,
      UNIQUE (shard, seq));
    CREATE INDEX evidence_request ON evidence (request_id, id);
    CREATE INDEX evidence_wallet ON evidence (wallet, id);
    CREATE INDEX evidence_type ON evidence (type, id);
    CREATE INDEX evidence_time ON evidence (timestamp_ms);
    CREATE TABLE evidence_consumed (
      topic text NOT NULL, partition int NOT NULL, next_offset bigint NOT NULL,
      PRIMARY KEY (topic, partition));
    CREATE TABLE evidence_shard (shard int PRIMARY KEY, next_seq bigint NOT NULL);
    CREATE FUNCTION evidence_refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'evidence is append-only'; END $$;
    CREATE TRIGGER evidence_never_deleted BEFORE DELETE ON evidence
      FOR EACH ROW EXECUTE FUNCTION evidence_refuse();
    CREATE TRIGGER evidence_never_changed BEFORE UPDATE OF
      shard, seq, event_id, type, topic, partition, "offset", headers, leaf_hash ON evidence
      FOR EACH ROW EXECUTE FUNCTION evidence_refuse();
    """,
)
_COLUMNS = (
    'shard, seq, event_id, type, request_id, wallet, timestamp_ms, topic, partition, "offset",'
    " headers, salt, value, leaf_hash"
)


# Any number that no other lock of this database has.
_WRITERS = 7_214_001


class PostgresEvidence:
    """EvidenceStore in one database."""

    def __init__(self, url: str) -> None:
        self._pool = PostgresPool(url, _MIGRATIONS, "evidence")

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def append(
        self, entries: Sequence[Entry], positions: Mapping[Position, int]
    ) -> list[Row]:
        shards = sorted({entry.partition for entry in entries})
        async with self._pool.transaction() as db:
            # Writers take turns: ids must become visible in their order, or a reader that pages
            # by id would never see a row that was committed late.
            await db.execute("SELECT pg_advisory_xact_lock($1)", _WRITERS)
            known = await db.fetch(
                "SELECT shard, next_seq FROM evidence_shard WHERE shard = ANY($1::int[])", shards
            )
            stored = await _stored(db, [entry.event_id for entry in entries])
            stored |= await _stored(db, disputed(entries, stored))
            rows = plan(entries, stored, dict(known), lambda: secrets.token_bytes(SALT_BYTES))
            await db.copy_records_to_table(
                "evidence",
                records=[values_of(row) for row in rows],
                columns=[name.strip(' "') for name in _COLUMNS.split(",")],
            )
            await db.executemany(
                "INSERT INTO evidence_shard VALUES ($1, $2)"
                " ON CONFLICT (shard) DO UPDATE SET next_seq = excluded.next_seq",
                sorted({row.shard: row.seq + 1 for row in rows}.items()),
            )
            await db.executemany(
                "INSERT INTO evidence_consumed VALUES ($1, $2, $3) ON CONFLICT (topic, partition)"
                " DO UPDATE SET next_offset ="
                " greatest(evidence_consumed.next_offset, excluded.next_offset)",
                sorted((p.topic, p.partition, offset) for p, offset in positions.items()),
            )
        return rows

    async def positions(self, wanted: Collection[Position]) -> dict[Position, int]:
        async with self._pool.connection() as db:
            rows = await db.fetch("SELECT topic, partition, next_offset FROM evidence_consumed")
        found = {Position(row[0], row[1]): int(row[2]) for row in rows}
        return {position: found[position] for position in wanted if position in found}

    async def query(self, query: Query, after: int, limit: int, max_bytes: int) -> Page:
        async with self._pool.connection() as db:
            sizes = await db.fetch(
                "SELECT id, coalesce(octet_length(value), 0) + octet_length(headers)"
                " FROM evidence WHERE id > $1"
                " AND ($2::text IS NULL OR request_id = $2) AND ($3::text IS NULL OR wallet = $3)"
                " AND ($4::text IS NULL OR type = $4)"
                " AND ($5::bigint IS NULL OR timestamp_ms >= $5) ORDER BY id LIMIT $6",
                after,
                query.request_id,
                query.wallet,
                query.type,
                query.since_ms,
                limit + 1,
            )
            ids, more = page_of([(row[0], row[1]) for row in sizes], limit, max_bytes)
            rows = await db.fetch(
                f"SELECT id, {_COLUMNS} FROM evidence WHERE id = ANY($1::bigint[]) ORDER BY id", ids
            )
        return Page([(int(row["id"]), _row(row)) for row in rows], ids[-1] if more else None)


async def _stored(db: Any, ids: Sequence[str]) -> dict[str, bytes | None]:
    if not ids:
        return {}
    return dict(
        await db.fetch("SELECT event_id, value FROM evidence WHERE event_id = ANY($1)", ids)
    )


def _row(row: Any) -> Row:
    entry = Entry(
        event_id=row["event_id"],
        type=row["type"],
        request_id=row["request_id"],
        wallet=row["wallet"],
        timestamp_ms=row["timestamp_ms"],
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        headers=read_header_bytes(row["headers"]),
        value=row["value"] or b"",
    )
    return Row(row["shard"], row["seq"], entry, row["salt"] or b"", row["leaf_hash"])
