"""A record that goes out as it came in: raw bytes and original headers, and more headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.envelope import Headers
from assay_runtime.records import Record


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message ready to be published; what the record lacked, it lacks."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers


def passed_on(record: Record, topic: str, added: Headers) -> RawMessage:
    """The record for another topic."""
    # A value must not be null where the key is (aiokafka refuses it, and it would say nothing).
    value = record.value if record.value is not None or record.key is not None else b""
    return RawMessage(topic, record.key, value, (*record.headers, *added))


def encoded(headers: Mapping[str, str]) -> Headers:
    """Headers from text; what no UTF-8 can carry is replaced."""
    return tuple((name, value.encode("utf-8", "replace")) for name, value in headers.items())
