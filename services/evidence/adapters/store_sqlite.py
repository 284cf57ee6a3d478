"""Evidence in SQLite."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from assay_runtime.records import Position
from assay_runtime.sqlite import SqliteFile
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
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      shard INTEGER NOT NULL, seq INTEGER NOT NULL,
      event_id TEXT NOT NULL UNIQUE, type TEXT NOT NULL,
      request_id TEXT, wallet TEXT, timestamp_ms INTEGER NOT NULL,
      topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
      headers BLOB NOT NULL, salt BLOB, value BLOB, leaf_hash BLOB NOT NULL,
      UNIQUE (shard, seq));
    CREATE INDEX evidence_request ON evidence (request_id, id);
    CREATE INDEX evidence_wallet ON evidence (wallet, id);
    CREATE INDEX evidence_type ON evidence (type, id);
    CREATE INDEX evidence_time ON evidence (timestamp_ms);
    CREATE TABLE consumed (
      topic TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
      PRIMARY KEY (topic, partition));
    """,
    """
    CREATE TRIGGER evidence_never_deleted BEFORE DELETE ON evidence
      BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END
    """,
    # Erasure empties salt and value; nothing else of a row may ever change.
    """
    CREATE TRIGGER evidence_never_changed BEFORE UPDATE OF
      id, shard, seq, event_id, type, topic, partition, "offset", headers, leaf_hash ON evidence
      BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END
    """,
)
_COLUMNS = (
    'id, shard, seq, event_id, type, request_id, wallet, timestamp_ms, topic, partition, "offset",'
    " headers, salt, value, leaf_hash"
)
_LOOK_UP = 500


class SqliteEvidence:
    """EvidenceStore in one file."""

    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(path, _MIGRATIONS, "evidence")

    async def open(self) -> None:
        await self._file.open()

    async def close(self) -> None:
        await self._file.close()

    async def append(
        self, entries: Sequence[Entry], positions: Mapping[Position, int]
    ) -> list[Row]:
        def write(db: sqlite3.Connection) -> list[Row]:
            stored = _stored(db, [entry.event_id for entry in entries])
            stored |= _stored(db, disputed(entries, stored))
            next_seq = _next_seq(db, {entry.partition for entry in entries})
            rows = plan(entries, stored, next_seq, lambda: secrets.token_bytes(SALT_BYTES))
            db.executemany(
                f"INSERT INTO evidence ({_COLUMNS}) VALUES (NULL{', ?' * 14})",
                [values_of(row) for row in rows],
            )
            db.executemany(
                "INSERT INTO consumed VALUES (?, ?, ?) ON CONFLICT (topic, partition)"
                " DO UPDATE SET next_offset = max(next_offset, excluded.next_offset)",
                [(p.topic, p.partition, offset) for p, offset in positions.items()],
            )
            return rows

        return await self._file.write(write)

    async def positions(self, wanted: Collection[Position]) -> dict[Position, int]:
        rows = await self._file.read(
            lambda db: db.execute("SELECT topic, partition, next_offset FROM consumed").fetchall()
        )
        found = {Position(topic, partition): offset for topic, partition, offset in rows}
        return {position: found[position] for position in wanted if position in found}

    async def query(self, query: Query, after: int, limit: int, max_bytes: int) -> Page:
        where, values = ["id > ?"], [after]
        for column, operator, value in (
            ("request_id", "=", query.request_id),
            ("wallet", "=", query.wallet),
            ("type", "=", query.type),
            ("timestamp_ms", ">=", query.since_ms),
        ):
            if value is not None:
                where.append(f"{column} {operator} ?")
                values.append(value)  # type: ignore[arg-type]
        sizes_sql = (
            "SELECT id, length(coalesce(value, '')) + length(headers) FROM evidence"
            f" WHERE {' AND '.join(where)} ORDER BY id LIMIT ?"
        )

        def read(db: sqlite3.Connection) -> Page:
            sizes = db.execute(sizes_sql, [*values, limit + 1]).fetchall()
            ids, more = page_of(sizes, limit, max_bytes)
            row_sql = f"SELECT {_COLUMNS} FROM evidence WHERE id = ?"
            rows = [_row(db.execute(row_sql, (row_id,)).fetchone()) for row_id in ids]
            return Page(rows, ids[-1] if more else None)

        return await self._file.read(read)


def _next_seq(db: sqlite3.Connection, shards: set[int]) -> dict[int, int]:
    sql = "SELECT coalesce(max(seq) + 1, 0) FROM evidence WHERE shard = ?"
    return {shard: db.execute(sql, (shard,)).fetchone()[0] for shard in shards}


def _stored(db: sqlite3.Connection, ids: Sequence[str]) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for start in range(0, len(ids), _LOOK_UP):
        some = ids[start : start + _LOOK_UP]
        marks = ", ".join("?" * len(some))
        found.update(
            db.execute(f"SELECT event_id, value FROM evidence WHERE event_id IN ({marks})", some)
        )
    return found


def _row(row: tuple[int, int, int, str, str, str | None, str | None, int, str, int, int,
                    bytes, bytes | None, bytes | None, bytes]) -> tuple[int, Row]:  # fmt: skip
    entry = Entry(
        event_id=row[3],
        type=row[4],
        request_id=row[5],
        wallet=row[6],
        timestamp_ms=row[7],
        topic=row[8],
        partition=row[9],
        offset=row[10],
        headers=read_header_bytes(bytes(row[11])),
        value=bytes(row[13] or b""),
    )
    return row[0], Row(row[1], row[2], entry, bytes(row[12] or b""), bytes(row[14]))
