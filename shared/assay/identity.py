"""Whose request a submitted record is: the same answer for whoever reads the topic (DESIGN §2)."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from assay.envelope import Attributes, is_structured, read_structured, text_headers
from assay.errors import EnvelopeError
from assay.ids import request_id, request_id_from_position

_ANONYMOUS_SOURCE = "/anonymous"


@dataclass(frozen=True, slots=True)
class Identity:
    """The request id of a record and the ids it comes from.

    `event_id` is the client's, or the request id where the client gave none.
    """

    request_id: str
    event_id: str
    source: str


def identify(
    topic: str,
    partition: int,
    offset: int,
    headers: Collection[tuple[str, bytes | None]],
    value: bytes,
    *,
    tenant: str,
    log: str = "",
) -> Identity:
    """Identity of a submitted record; `log` names the incarnation of the topic, whose offsets
    start anew with it.

    A client's own id (`ce_id`, or `id` of a structured event) names the request together with its
    source; without one the record's place on the bus does, which does not protect against a
    publisher's own repeats.
    """
    attributes = _attributes(headers, value)
    if attributes is None:
        by_place = request_id_from_position(f"{log}/{topic}" if log else topic, partition, offset)
        return Identity(by_place, by_place, _ANONYMOUS_SOURCE)
    return Identity(
        request_id(tenant, attributes.source, attributes.id), attributes.id, attributes.source
    )


def _attributes(headers: Collection[tuple[str, bytes | None]], value: bytes) -> Attributes | None:
    if is_structured(headers):
        try:
            document = json.loads(value)
            return read_structured(document)[0] if isinstance(document, dict) else None
        except (ValueError, RecursionError, EnvelopeError):
            return None
    text = text_headers(headers)
    if not text.get("ce_id"):
        return None
    return Attributes(
        text["ce_id"], text.get("ce_source") or _ANONYMOUS_SOURCE, text.get("ce_type", "")
    )
