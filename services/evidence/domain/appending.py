"""Which rows a batch adds to what is kept (DESIGN §7). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from services.evidence.domain.entries import Entry, Row
from services.evidence.domain.hashing import header_bytes, leaf_hash
from services.evidence.domain.repeats import Kept, conflict_of, is_repeat

Stored = Mapping[str, Kept | None]
"""What is kept under an id; None under one that is free."""


def plan(
    entries: Sequence[Entry],
    stored: Stored,
    next_seq: Mapping[int, int],
    make_salt: Callable[[], bytes],
) -> list[Row]:
    """Rows to append: repeats are dropped, another record under a taken id is itself recorded.

    `stored` tells of every id that `unknown` asked for, `next_seq` the next sequence number per
    shard.
    """
    counters = dict(next_seq)
    rows: list[Row] = []
    for entry in _added(entries, stored).values():
        seq = counters.get(entry.partition, 0)
        counters[entry.partition] = seq + 1
        salt = make_salt()
        data = header_bytes(entry.headers)
        rows.append(Row(entry.partition, seq, entry, salt, leaf_hash(entry, salt, data), data))
    return rows


def unknown(entries: Sequence[Entry], stored: Stored) -> list[str]:
    """Ids that `stored` must tell of before `plan`; first those of the entries, the former ones
    too, then, for as long as they are taken by other records, those of their conflicts."""
    former = (entry.former_id for entry in entries if entry.former_id)
    wanted = dict.fromkeys((*_added(entries, stored), *former))
    return [name for name in wanted if name not in stored]


def _added(entries: Sequence[Entry], stored: Stored) -> dict[str, Entry]:
    """The entries to append by their ids, if those that `stored` does not tell of are free."""
    added: dict[str, Entry] = {}
    for given in entries:
        former = stored.get(given.former_id) if given.former_id else None
        if former is not None and is_repeat(given, former):
            continue
        entry = given
        while kept := _kept(entry.event_id, added, stored):
            if is_repeat(entry, kept):
                break
            entry = conflict_of(entry)
        else:
            added[entry.event_id] = entry
    return added


def _kept(event_id: str, added: Mapping[str, Entry], stored: Stored) -> Kept | None:
    earlier = added.get(event_id)
    return stored.get(event_id) if earlier is None else Kept.of(earlier)
