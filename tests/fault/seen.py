"""What the checker keeps of a record: identity, hash, lineage, and little of its content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from assay.envelope import text_headers
from assay.events import (
    GenerationAnswered,
    GenerationRejected,
    WalletEventSubmitted,
    WalletScoreSigned,
)
from assay.events.evidence import EvidenceRecordSubmitted
from assay.identity import identify
from assay.ids import event_id
from assay_runtime.records import Record

SUBMITTED = WalletEventSubmitted.type
SIGNED = WalletScoreSigned.type
REJECTED = GenerationRejected.type
EVIDENCE_RECORD = EvidenceRecordSubmitted.type

# The content that rules look at; everything else of a value is represented by its hash.
_KEPT = {
    GenerationAnswered.type: ("outcome",),
    REJECTED: ("terminal", "ends_as", "reason"),
    EVIDENCE_RECORD: ("record", "payload"),
    SIGNED: ("score", "wallet_address", "timestamp_ms", "attestations", "metadata"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One record as it stands on a topic. `sha256` is hex, of the value's bytes.

    `identity` tells one event from another on its topic: the same identity with the same hash is
    a repeat of the same event. `problem` says why the record is no event of ours.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str
    event_id: str
    request_id: str
    sha256: str
    identity: str
    meta: dict[str, Any] = field(default_factory=dict)
    content: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def place(self) -> tuple[str, int, int]:
        return self.topic, self.partition, self.offset

    @property
    def aside(self) -> str | None:
        """ "shadow" or "unsealed" where the event says that nothing of it may be signed; such
        events run beside a request under its id, and neither end it nor stand in its order."""
        return next((mark for mark in ("shadow", "unsealed") if self.meta.get(mark)), None)

    @property
    def at(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


def seen(record: Record, *, tenant: str, log: str = "") -> Seen:
    """A record of any topic; never raises on what it holds."""
    value, headers = record.value or b"", text_headers(record.headers)
    sha256 = hashlib.sha256(value).hexdigest()
    request_id = headers.get("ce_requestid", "")
    identity = own_id = headers.get("ce_id", "")
    meta: dict[str, Any] = {}
    content: dict[str, Any] = {}
    problem: str | None = None
    if record.topic == SUBMITTED:
        who = identify(
            record.topic, record.partition, record.offset, record.headers, value,
            tenant=tenant, log=log,
        )  # fmt: skip
        request_id, own_id = who.request_id, who.event_id
        identity = f"{who.source} {who.event_id}"
    elif record.topic.endswith(".dlq"):
        request_id = headers.get("assay.request.id") or request_id
        where = (headers.get(f"__connect.errors.{name}", "?") for name in ("partition", "offset"))
        identity = " ".join(where)
        content = {"code": headers.get("assay.error.code", "?")}
    else:
        meta, content, problem = _event(record.topic, headers, value)
    return Seen(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=(record.key or b"").decode("utf-8", "replace"),
        event_id=own_id,
        request_id=request_id,
        sha256=sha256,
        identity=identity,
        meta=meta,
        content=content,
        problem=problem,
    )


def _event(
    topic: str, headers: dict[str, str], value: bytes
) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Meta, kept content and what is wrong with the envelope of an internal event."""
    try:
        document = from_json(value)
        meta = document["meta"]
        content = {name: document.get(name) for name in _KEPT.get(topic, ())}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return {}, {}, f"the value is no event: {error!r}"
    mirrored = {"ce_requestid": "request_id", "ce_causationid": "causation_id"}
    for header, name in mirrored.items():
        if headers.get(header, "") != (meta.get(name) or ""):
            return meta, content, f"header {header} is not meta.{name}"
    due = event_id(meta.get("causation_id") or "", headers.get("ce_type", ""), value)
    if headers.get("ce_id") != due:
        return meta, content, f"event id {headers.get('ce_id')} should be {due}"
    return meta, content, None
