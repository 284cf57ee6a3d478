"""What is kept of a record, and under which names (DESIGN §7). Pure."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from assay.envelope import Headers, text_headers
from assay.events import EvidenceRecordSubmitted, WalletEventSubmitted
from assay.identity import identify
from assay.ids import event_id
from assay.topics import catalogue
from services.evidence.domain.named_wallets import SUBMISSIONS, address_in, named_wallet

DEAD_LETTER = "DEAD_LETTER"
_NAMESPACE = uuid.UUID("0d1c6b52-6f0e-5a43-8e65-6a1f9c1f5d77")
# What stands in a column and its index; anything else a stranger writes into a header stays in
# the kept headers alone. A NUL or 3 KB of text would make the database refuse the record.
_NAME = re.compile(r"[!-~]{1,200}", re.ASCII)
_FAILURE = ("assay.error.code", "assay.error.pointer", "__connect.errors.exception.class.name")
_EVENTS = {topic.name: topic.event for topic in catalogue()}


@dataclass(frozen=True, slots=True)
class Entry:
    """A record as kept: `value` and `headers` are the bytes as they came.

    `type` is the event's type, or the name of the fact for facts without a topic of their own.
    `former_id` is the id that an older version would have given it, where that is another.
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
    former_id: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Row:
    """An entry with its place in the shard's log; the shard is the partition number.

    `header_data` is the entry's headers as stored and hashed. `erased_by` names the erasure that
    emptied value, headers and salt; the hash stays.
    """

    shard: int
    seq: int
    entry: Entry
    salt: bytes
    leaf_hash: bytes
    header_data: bytes
    erased_by: str | None = None


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

    The wallet is the event's subject, or the record's key where that looks like an address; of a
    submission, whose publisher may set neither or mislead with both, first what its value says.
    `log` names the incarnation of the topics: positions say nothing across incarnations. A `ce_id`
    that breaks the id rule is no event's id, and gets one that no other record has.
    """
    text = text_headers(headers)
    request = _named(text.get("ce_requestid"))
    # The topic's, not the header's: what anybody may publish is no answer and no verdict.
    kind = _EVENTS.get(topic) or _named(text.get("ce_type")) or topic
    identifier: str | None
    former_id = None
    if topic == WalletEventSubmitted.type:
        identity = identify(topic, partition, offset, headers, value, tenant=tenant, log=log)
        request, kind = identity.request_id, topic
        digest = hashlib.sha256(value).hexdigest()
        identifier = derived_id(identity.source, identity.event_id, digest)
    elif topic.endswith(".dlq"):
        # The record in it still carries the id of the event that failed.
        kind = DEAD_LETTER
        request = _named(text.get("assay.request.id")) or request
        origin = (
            log,
            topic,
            text.get("__connect.errors.partition", str(partition)),
            text.get("__connect.errors.offset", str(offset)),
        )
        identifier, former_id = derived_id(*origin, *failure_of(text)), derived_id(*origin)
    else:
        identifier = _ruled(topic, text, value)
        if topic == EvidenceRecordSubmitted.type:
            kind = _record_name(value) or kind
    return Entry(
        event_id=identifier or derived_id(log, topic, str(partition), str(offset)),
        type=kind,
        request_id=request,
        wallet=wallet_in(topic, headers, value)
        or address_in(text.get("ce_subject"))
        or address_in((key or b"").decode("utf-8", "replace")),
        timestamp_ms=timestamp_ms,
        topic=topic,
        partition=partition,
        offset=offset,
        headers=headers,
        value=value,
        former_id=former_id,
    )


def wallet_in(topic: str, headers: Headers, value: bytes) -> str | None:
    """The wallet that a submission, or its dead letter, is about as its value says."""
    return named_wallet(headers, value) if topic in SUBMISSIONS else None


def failure_of(text: Mapping[str, str]) -> tuple[str | None, ...]:
    """What tells the failures of one record apart by a dead letter's headers. A record may be
    replayed from its place and fail otherwise; the message may differ where the failure does not.
    """
    return tuple(text.get(name) for name in _FAILURE)


def derived_id(*parts: str | None) -> str:
    return str(uuid.uuid5(_NAMESPACE, json.dumps(parts)))


def _ruled(topic: str, text: Mapping[str, str], value: bytes) -> str | None:
    """The `ce_id` where it is what `assay.ids` makes of parent, type and value, else one of the
    topic's own for it; None where there is none.

    The type is the topic's, so an id of another topic's event breaks the rule on this one.
    """
    given = text.get("ce_id")
    if not given:
        return None
    parent = text.get("ce_causationid") or text.get("ce_requestid") or ""
    if given == event_id(parent, _EVENTS.get(topic, topic), value):
        return given
    return derived_id("ce_id", topic, given, hashlib.sha256(value).hexdigest())


def _named(text: str | None) -> str | None:
    return text if text and _NAME.fullmatch(text) else None


def _record_name(value: bytes) -> str | None:
    try:
        name = json.loads(value)["record"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return _named(name) if isinstance(name, str) else None
