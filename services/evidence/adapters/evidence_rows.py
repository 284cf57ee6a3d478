"""Rows as both databases store them, and what both are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVar

from services.evidence.domain import (
    Entry,
    Kept,
    Row,
    read_header_bytes,
    wallet_in,
)
from services.evidence.domain.erasure import ERASURE_PLACE, Erasure
from services.evidence.store import Query

COLUMNS = (
    "shard", "seq", "event_id", "type", "request_id", "wallet", "timestamp_ms", "topic",
    "partition", '"offset"', "headers", "salt", "value", "leaf_hash",
)  # fmt: skip
# Of a row that an entry is compared with, in the order of `kept_of`.
COMPARED = ("value", "topic", "type", "request_id", "wallet", "headers")
# Rows emptied in one transaction; an erasure's record names each of them.
ERASE_AT_ONCE = 1_000
# Values looked up in one statement.
LOOK_UP = 500

Id = TypeVar("Id", str, int)


def values_of(row: Row) -> tuple[object, ...]:
    """In the order of COLUMNS."""
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
        row.header_data,
        row.salt,
        entry.value,
        row.leaf_hash,
    )


def row_of(columns: Sequence[Any]) -> tuple[int, Row]:
    """The cursor and the row of id, COLUMNS and erased_by."""
    (
        row_id, shard, seq, event_id, kind, request_id, wallet, timestamp_ms, topic, partition,
        offset, headers, salt, value, leaf_hash, erased_by,
    ) = columns  # fmt: skip
    entry = Entry(
        event_id=event_id,
        type=kind,
        request_id=request_id,
        wallet=wallet,
        timestamp_ms=timestamp_ms,
        topic=topic,
        partition=partition,
        offset=offset,
        headers=read_header_bytes(headers),
        value=value or b"",
    )
    return row_id, Row(shard, seq, entry, salt or b"", leaf_hash, headers, erased_by)


def kept_of(
    value: bytes | None,
    topic: str,
    kind: str,
    request_id: str | None,
    wallet: str | None,
    headers: bytes,
) -> Kept:
    """The columns of COMPARED. An older version kept submissions under the wallet of their subject
    or none, which is no difference."""
    told = read_header_bytes(headers)
    named = None if value is None else wallet_in(topic, told, value)
    return Kept.of_columns(value, topic, kind, request_id, named or wallet, told)


def conditions(query: Query, after: int) -> tuple[list[str], list[object]]:
    """`column operator` and its value, of each restriction."""
    asked: list[tuple[str, object]] = [
        ("id >", after),
        ("request_id =", query.request_id),
        ("wallet =", query.wallet),
        ("type =", query.type),
        ("timestamp_ms >=", query.since_ms),
    ]
    given = [(column, value) for column, value in asked if value is not None]
    return [column for column, _ in given], [value for _, value in given]


def erasure_conditions(erasure: Erasure) -> tuple[list[str], list[object]]:
    """The same, of the rows to empty; an erasure's own record cannot be erased."""
    column = "request_id =" if erasure.wallet is None else "wallet ="
    return [column, "topic <>"], [erasure.wallet or erasure.request_id, ERASURE_PLACE]


def in_parts(ids: Collection[Id]) -> Iterator[list[Id]]:
    """At most LOOK_UP of them at a time."""
    every = list(ids)
    for start in range(0, len(every), LOOK_UP):
        yield every[start : start + LOOK_UP]
