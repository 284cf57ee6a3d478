"""The identifiers of requests and events (DESIGN §2, "one id rule").

Every id is a version 5 UUID: SHA-1 over a fixed namespace and a name, truncated to 128 bits.
The name is always one JSON array of strings, ASCII, without whitespace (`json.dumps` with
`ensure_ascii=True` and separators `,` and `:`; other characters as lower-case `\\uXXXX`). An
array cannot be read two ways, so `["a", "bc"]` and `["ab", "c"]` never meet in one id.
"""

from __future__ import annotations

import hashlib
import uuid
from json.encoder import encode_basestring_ascii

# Fixed for ever: another namespace is another identity for every event ever published.
REQUEST_NAMESPACE = uuid.UUID("7d9c2a3e-5b1f-5c84-9a60-2f4b8f0d6e11")
EVENT_NAMESPACE = uuid.UUID("c3e1f6b8-04a7-5d29-8b53-91d7a2ce4f70")


def request_id(tenant: str, source: str, client_id: str) -> str:
    """The request id of a submission that carries a client's own id.

    `client_id` is the `Idempotency-Key` of the HTTP API or the `ce_id` of a published event, and
    `source` says who gave it (the `ce_source`, or the API's own source), so that two publishers
    may use the same id for different requests.
    """
    return _uuid5(REQUEST_NAMESPACE, "client", tenant, source, client_id)


def request_id_from_position(topic: str, partition: int, offset: int) -> str:
    """The request id of a record whose publisher gave none: its place on the bus.

    A redelivery of the record repeats the id; a publisher that sends the same record twice makes
    two requests.
    """
    return _uuid5(REQUEST_NAMESPACE, "position", topic, str(partition), str(offset))


def event_id(parent_id: str, event_type: str, value: bytes) -> str:
    """The `ce_id` of an event: same id means same parent, same type and same bytes.

    `parent_id` is the `ce_id` of the event that caused this one, or the request id at the head of
    the chain: any string. The name is `[parent_id, event_type, hex SHA-256 of value]` under
    `EVENT_NAMESPACE`; the parent stands in the name and not in the namespace because a foreign
    publisher's `ce_id` need not be a UUID.
    """
    return _uuid5(EVENT_NAMESPACE, parent_id, event_type, hashlib.sha256(value).hexdigest())


# The two bits of the variant (RFC 9562) in front of what the hash says.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def _uuid5(namespace: uuid.UUID, *parts: str) -> str:
    """`str(uuid.uuid5(namespace, json.dumps(parts, separators=(",", ":"))))` in a third of the
    time: an id is made for every event."""
    name = f"[{','.join(map(encode_basestring_ascii, parts))}]"
    digest = hashlib.sha1(namespace.bytes + name.encode(), usedforsecurity=False).hexdigest()
    return (
        f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}"
        f"-{_VARIANT[digest[16]]}{digest[17:20]}-{digest[20:32]}"
    )
