"""What is kept of a record, and how it is hashed (DESIGN §7). Pure."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from assay.envelope import Headers, text_headers
from assay.events import EvidenceRecordSubmitted, WalletEventSubmitted
from assay.identity import identify
from assay.ids import event_id

SALT_BYTES = 16
DEAD_LETTER = "DEAD_LETTER"
CONFLICT = "EVIDENCE_CONFLICT"
_NAMESPACE = uuid.UUID("0d1c6b52-6f0e-5a43-8e65-6a1f9c1f5d77")
# What stands in a column and its index; anything else a stranger writes into a header stays in
# the kept headers alone. A NUL or 3 KB of text would make the database refuse the record.
_NAME = re.compile(r"[!-~]{1,200}", re.ASCII)
_WALLET = re.compile(r"0x[0-9a-f]{40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    """A record as kept: `value` and `headers` are the bytes as they came.

    `type` is the event's type, or the name of the fact for facts without a topic of their own.
    """

    event_id: str
    type: str
    request_id: str | None
    wallet: str | None
    timestamp_ms: int
    topic: str
    partition: int
    offset: int
    headers: Headers
    value: bytes


@dataclass(frozen=True, slots=True)
class Row:
    """An entry with its place in the shard's log; the shard is the partition number."""

    shard: int
    seq: int
    entry: Entry
    salt: bytes
    leaf_hash: bytes


def entry_of(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    headers: Headers,
    value: bytes,
    *,
    tenant: str,
    key: bytes | None = None,
    log: str = "",
) -> Entry:
    """Entry for a record of any topic; never raises on what the record holds.

    The wallet is the event's subject, or the record's key where that looks like an address. `log`
    names the incarnation of the topics: positions say nothing across incarnations.
    """
    text = text_headers(headers)
    request = _named(text.get("ce_requestid"))
    kind = _named(text.get("ce_type")) or topic
    identifier = text.get("ce_id")
    if identifier and not _named(identifier):
        identifier = _derived(identifier)
    if topic == WalletEventSubmitted.type:
        identity = identify(topic, partition, offset, headers, value, tenant=tenant, log=log)
        request, kind = identity.request_id, topic
        identifier = _derived(identity.source, identity.event_id, hashlib.sha256(value).hexdigest())
    elif topic.endswith(".dlq"):
        # The record in it still carries the id of the event that failed.
        kind = DEAD_LETTER
        request = _named(text.get("assay.request.id")) or request
        identifier = _derived(
            log,
            topic,
            text.get("__connect.errors.partition", str(partition)),
            text.get("__connect.errors.offset", str(offset)),
        )
    elif topic == EvidenceRecordSubmitted.type:
        kind = _record_name(value) or kind
    return Entry(
        event_id=identifier or _derived(log, topic, str(partition), str(offset)),
        type=kind,
        request_id=request,
        wallet=_wallet(text.get("ce_subject")) or _wallet((key or b"").decode("utf-8", "replace")),
        timestamp_ms=timestamp_ms,
        topic=topic,
        partition=partition,
        offset=offset,
        headers=headers,
        value=value,
    )


def _derived(*parts: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, json.dumps(parts)))


def _named(text: str | None) -> str | None:
    return text if text and _NAME.fullmatch(text) else None


def _wallet(text: str | None) -> str | None:
    lower = (text or "").lower()
    return lower if _WALLET.fullmatch(lower) else None


def _record_name(value: bytes) -> str | None:
    try:
        name = json.loads(value)["record"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return _named(name) if isinstance(name, str) else None


def header_bytes(headers: Headers) -> bytes:
    """Headers as stored and hashed: for each, name and value, every length as 4 bytes
    big-endian; a null value has the length 0xFFFFFFFF."""
    out = bytearray()
    for name, value in headers:
        encoded = name.encode("utf-8", "surrogatepass")
        out += len(encoded).to_bytes(4, "big") + encoded
        out += b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value
    return bytes(out)


def read_header_bytes(data: bytes) -> Headers:
    """The inverse of `header_bytes`."""
    headers: list[tuple[str, bytes | None]] = []
    at = 0

    def take(count: int) -> bytes:
        nonlocal at
        at += count
        return data[at - count : at]

    while at < len(data):
        name = take(int.from_bytes(take(4), "big")).decode("utf-8", "surrogatepass")
        size = take(4)
        headers.append((name, None if size == b"\xff" * 4 else take(int.from_bytes(size, "big"))))
    return tuple(headers)


def leaf_hash(entry: Entry, salt: bytes) -> bytes:
    """SHA-256 over salt, value, headers, topic, partition and offset, each variable part led by
    its length (8 bytes big-endian); integers are 8 bytes big-endian (DESIGN §7)."""
    digest = hashlib.sha256(salt)
    for part in (entry.value, header_bytes(entry.headers), entry.topic.encode()):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    digest.update(entry.partition.to_bytes(8, "big"))
    digest.update(entry.offset.to_bytes(8, "big"))
    return digest.digest()


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
        rows.append(Row(entry.partition, seq, entry, salt, leaf_hash(entry, salt)))
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
