"""A row as both databases store it: the values in the order of their columns."""

from __future__ import annotations

from services.evidence.domain import Row, header_bytes


def values_of(row: Row) -> tuple[object, ...]:
    """shard, seq, ids, place, headers, salt, value, leaf hash."""
    entry = row.entry
    return (
        row.shard,
        row.seq,
        entry.event_id,
        entry.type,
        entry.request_id,
        entry.wallet,
        entry.timestamp_ms,
        entry.topic,
        entry.partition,
        entry.offset,
        header_bytes(entry.headers),
        row.salt,
        entry.value,
        row.leaf_hash,
    )
