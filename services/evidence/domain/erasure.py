"""Erasure: text and salt of rows go, their hashes and the fact of it stay (DESIGN §7). Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from services.evidence.domain.entries import Entry, derived_id

ERASURE = "ERASURE"
# No topic of a broker can have this name, so no publisher can write such a row.
ERASURE_PLACE = "evidence/erasure"


@dataclass(frozen=True, slots=True)
class Erasure:
    """What somebody wants gone: all rows of a request, or all of a wallet (lower case); exactly
    one of the two is given. `at_ms` is when they asked."""

    request_id: str | None
    wallet: str | None
    reason: str
    actor: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Erasable:
    """A row that is to be emptied."""

    id: int
    event_id: str
    shard: int
    seq: int
    leaf_hash: bytes


@dataclass(frozen=True, slots=True)
class Erased:
    """Rows emptied, and the rows that say so."""

    rows: int
    records: tuple[str, ...]

    @classmethod
    def in_all(cls, parts: Sequence[Erased]) -> Self:
        """Of several transactions."""
        records = (record for part in parts for record in part.records)
        return cls(sum(part.rows for part in parts), tuple(records))


def erasure_entries(erasure: Erasure, rows: Sequence[Erasable]) -> dict[int, Entry]:
    """The entry that says which rows were erased, by whom, when and why, for each shard."""
    entries = {}
    for shard in sorted({row.shard for row in rows}):
        gone = [row for row in rows if row.shard == shard]
        value = {
            "record": ERASURE,
            "request_id": erasure.request_id,
            "wallet": erasure.wallet,
            "reason": erasure.reason,
            "actor": erasure.actor,
            "at_ms": erasure.at_ms,
            "erased": [
                {"event_id": row.event_id, "seq": row.seq, "leaf_hash": row.leaf_hash.hex()}
                for row in gone
            ],
        }
        entries[shard] = Entry(
            event_id=derived_id(ERASURE_PLACE, str(erasure.at_ms), gone[0].event_id),
            type=ERASURE,
            request_id=erasure.request_id,
            wallet=erasure.wallet,
            timestamp_ms=erasure.at_ms,
            topic=ERASURE_PLACE,
            partition=shard,
            offset=0,
            headers=(),
            value=json.dumps(value, separators=(",", ":")).encode(),
        )
    return entries


def erasure_note(event_id: str, value: bytes) -> dict[str, object]:
    """What a page says of an erased row: the record of the erasure, when, who and why."""
    said = json.loads(value)
    return {"record": event_id, **{name: said[name] for name in ("at_ms", "actor", "reason")}}
