"""Which rows a batch adds to what is kept (DESIGN §7). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from assay.ids import event_id
from services.evidence.domain.entries import Entry, Row
from services.evidence.domain.hashing import header_bytes, leaf_hash

CONFLICT = "EVIDENCE_CONFLICT"


def plan(
    entries: Sequence[Entry],
    stored: Mapping[str, bytes | None],
    next_seq: Mapping[int, int],
    make_salt: Callable[[], bytes],
) -> list[Row]:
    """Rows to append: repeats are dropped, the same id with other bytes is itself recorded.

    `stored` holds the values already kept of these event ids (None where erased), `next_seq` the
    next sequence number per shard.
    """
    known: dict[str, bytes | None] = dict(stored)
    counters = dict(next_seq)
    rows: list[Row] = []
    for given in entries:
        entry = given
        if entry.event_id in known:
            kept = known[entry.event_id]
            if kept is None or kept == entry.value:
                continue
            entry = conflict_of(entry)
            if entry.event_id in known:
                continue
        known[entry.event_id] = entry.value
        seq = counters.get(entry.partition, 0)
        counters[entry.partition] = seq + 1
        salt = make_salt()
        data = header_bytes(entry.headers)
        rows.append(Row(entry.partition, seq, entry, salt, leaf_hash(entry, salt, data), data))
    return rows


def conflict_of(entry: Entry) -> Entry:
    """The entry under an id of its own: its first id is taken by other bytes."""
    return replace(entry, event_id=event_id(entry.event_id, CONFLICT, entry.value), type=CONFLICT)


def disputed(entries: Iterable[Entry], stored: Mapping[str, bytes | None]) -> list[str]:
    """Ids of the conflict entries `plan` may make; it needs their stored values as well."""
    return [
        conflict_of(entry).event_id
        for entry in entries
        if (kept := stored.get(entry.event_id)) is not None and kept != entry.value
    ]
