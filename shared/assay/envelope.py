"""CloudEvents 1.0 on Kafka (DESIGN §2).

Binary mode: attributes in `ce_*` headers beside `content-type`, the value is the event's JSON
as bytes. Structured mode (everything in the value) is read on the public input topic only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from assay.errors import EnvelopeError
from assay.events.meta import InternalEvent
from assay.ids import event_id

JSON = b"application/json"
STRUCTURED = "application/cloudevents+json"

Headers = tuple[tuple[str, bytes | None], ...]

_FIXED = (("content-type", JSON), ("ce_specversion", b"1.0"))
# The headers of our own services. Where there are no others, names need not be put into lower
# case to be compared, which is half of the time that reading them takes.
_OURS = frozenset(
    (
        "content-type", "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_requestid",
        "ce_tenantid", "ce_attempt", "ce_subject", "ce_causationid", "traceparent",
        "assay_seal", "assay_duration_ms",
    )
)  # fmt: skip


class Message(NamedTuple):
    """A record ready to be published; `value` goes out as it is."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]

    @property
    def id(self) -> str:
        """The event's `ce_id`."""
        for name, value in self.headers:
            if name == "ce_id":
                return value.decode()
        raise EnvelopeError("message has no ce_id")


class Attributes(NamedTuple):
    """The CloudEvents attributes a reader needs."""

    id: str
    source: str
    type: str
    request_id: str | None = None


def emit(
    event: InternalEvent, *, topic: str, source: str, parent_id: str, value: bytes | None = None
) -> Message:
    """Message for an event made from the event `parent_id`; `value` where its bytes are made
    already and must not be made again.

    Its id is uuid5(parent id, type, SHA-256 of the value), so the same bytes made again from the
    same parent are the same event (the one id rule, DESIGN §2). `ce_time` is left out: a clock
    in the record would make a repeat differ.
    """
    value = event.to_bytes() if value is None else value
    meta = event.meta
    headers = [
        *_FIXED,
        ("ce_id", event_id(parent_id, event.type, value).encode()),
        ("ce_source", source.encode()),
        ("ce_type", event.type.encode()),
        ("ce_requestid", meta.request_id.encode()),
        ("ce_tenantid", meta.tenant_id.encode()),
        ("ce_attempt", b"%d" % meta.attempt),
    ]
    if meta.wallet:
        headers.append(("ce_subject", meta.wallet.encode()))
    if meta.causation_id:
        headers.append(("ce_causationid", meta.causation_id.encode()))
    return Message(topic, event.key.encode(), value, tuple(headers))


def text_headers(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """Headers as text, names in lower case, the last of a name winning; bytes that are no UTF-8
    become U+FFFD, so that a bad header can never hide a record from its reader."""
    return {name.lower(): _text(value) for name, value in headers}


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", errors="replace")


def read_binary(headers: Iterable[tuple[str, bytes | None]]) -> Attributes:
    """Attributes from binary-mode headers; EnvelopeError names what is missing."""
    every = tuple(headers)
    own = dict(every)
    if own.get("ce_specversion") == b"1.0" and _OURS.issuperset(own):
        event, source, kind = own.get("ce_id"), own.get("ce_source"), own.get("ce_type")
        if event and source and kind:
            try:
                request = (own["ce_requestid"] or b"").decode() if "ce_requestid" in own else None
                return Attributes(event.decode(), source.decode(), kind.decode(), request)
            except UnicodeDecodeError:
                pass  # told below, with what is wrong replaced
    text = text_headers(every)
    missing = [n for n in ("ce_id", "ce_source", "ce_type", "ce_specversion") if not text.get(n)]
    if missing:
        raise EnvelopeError(f"CloudEvents headers missing: {', '.join(missing)}")
    if text["ce_specversion"] != "1.0":
        raise EnvelopeError(f"ce_specversion is {text['ce_specversion']!r}, expected '1.0'")
    return Attributes(text["ce_id"], text["ce_source"], text["ce_type"], text.get("ce_requestid"))


def is_structured(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Whether the record says that it is a structured-mode CloudEvent."""
    content_type = text_headers(headers).get("content-type", "")
    return content_type.split(";")[0].strip().lower() == STRUCTURED


def read_structured(document: dict[str, Any]) -> tuple[Attributes, bytes]:
    """Attributes and `data` as bytes from a parsed structured-mode event."""
    for name in ("id", "source", "type", "specversion"):
        if not isinstance(document.get(name), str) or not document[name]:
            raise EnvelopeError(f"CloudEvent attribute {name!r} is missing or not a string")
        try:
            document[name].encode()
        except UnicodeEncodeError:
            raise EnvelopeError(
                f"CloudEvent attribute {name!r} has a lone surrogate, which no UTF-8 can carry"
            ) from None
    if document["specversion"] != "1.0":
        raise EnvelopeError(f"specversion is {document['specversion']!r}, expected '1.0'")
    if "data" not in document:
        raise EnvelopeError("CloudEvent has no 'data'")
    data = json.dumps(document["data"], ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", errors="surrogatepass"
    )
    return Attributes(document["id"], document["source"], document["type"]), data
