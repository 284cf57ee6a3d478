"""Dead letters as their readers see them: what was kept of a record, and why (SPEC X.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.envelope import Headers, text_headers
from assay.retry_headers import behind_last

FIRST_ADDED = "__connect.errors.topic"
"""The first header that the runtime adds, behind those of the record itself."""


@dataclass(frozen=True, slots=True)
class Place:
    """A record's place on the bus."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class LetterRecord:
    """A record of a dead-letter topic as it stands there; the time is the broker's."""

    place: Place
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


@dataclass(frozen=True, slots=True)
class DeadLetterView:
    """A dead letter read: `headers` are the record's own, `origin` is where it stood.

    `origin` is None where no service of ours wrote it. `left_out_sha256` (hex) is set where the
    record was too large to be kept whole: its value, perhaps its headers too, are at the origin.
    """

    record: LetterRecord
    origin: Place | None
    headers: Headers
    service: str
    code: str
    reason: str
    pointer: str | None
    request_id: str | None
    attempts: int
    left_out_sha256: str | None
    left_out_bytes: int | None


def read_dead_letter(record: LetterRecord) -> DeadLetterView:
    """Never raises on what the record holds."""
    cut = behind_last(record.headers, FIRST_ADDED)
    own = record.headers if cut is None else record.headers[:cut]
    told = text_headers(() if cut is None else record.headers[cut:])
    return DeadLetterView(
        record=record,
        origin=_origin(told),
        headers=own,
        service=told.get("__connect.errors.connector.name", ""),
        code=told.get("assay.error.code", "unknown"),
        reason=told.get("__connect.errors.exception.message", "no reason recorded"),
        pointer=told.get("assay.error.pointer"),
        request_id=told.get("assay.request.id") or text_headers(own).get("ce_requestid"),
        attempts=_number(told, "assay.error.attempts") or 1,
        left_out_sha256=told.get("assay.error.value.sha256"),
        left_out_bytes=_number(told, "assay.error.value.bytes"),
    )


def _origin(told: Mapping[str, str]) -> Place | None:
    partition = _number(told, "__connect.errors.partition")
    offset = _number(told, "__connect.errors.offset")
    topic = told.get(FIRST_ADDED)
    if not topic or partition is None or offset is None:
        return None
    return Place(topic, partition, offset)


def _number(told: Mapping[str, str], name: str) -> int | None:
    text = told.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
