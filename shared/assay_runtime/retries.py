"""Postponed records: what is added on the way to a retry topic, and taken off again (DESIGN §3).

A record keeps its bytes, key and headers. Behind its headers stand ours, from `assay.retry.topic`
on, so that a publisher's own headers of these names are never taken for them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.envelope import Headers, text_headers
from assay.topics import origin_name, retry_name
from assay_runtime.failures import DeadLetter, RetryLater
from assay_runtime.raw_message import RawMessage, encoded, passed_on
from assay_runtime.records import Decoder, Delivery, Record
from assay_runtime.settings import SettingsError

_FIRST = "assay.retry.topic"
NOT_BEFORE = "assay.retry.not-before"
_MESSAGE_BYTES = 1_024


@dataclass(frozen=True, slots=True)
class RetriedRecord(Record):
    """A record read from a retry topic as it came first: topic, partition, offset, time and
    headers are the origin's, so that whoever makes an id of them makes the same again.
    `attempt` counts its waits so far."""

    attempt: int = 0


def retry_topics(topics: Sequence[str], service: str, delays_s: Sequence[float]) -> tuple[str, ...]:
    """The retry topics that a service reads for these topics, by tier."""
    tiers = range(1, len(delays_s) + 1)
    return tuple(retry_name(topic, service, tier) for tier in tiers for topic in topics)


class Retries:
    """Where a postponed record goes: one tier per delay, in seconds, then nowhere."""

    def __init__(
        self,
        service: str,
        tiers: int,
        delays_s: Sequence[float],
        clock: Callable[[], float] = time.time,
    ) -> None:
        if len(delays_s) > tiers or not all(0 <= s < math.inf for s in delays_s):
            raise SettingsError(
                f"ASSAY_KAFKA__RETRY_DELAYS_S: at most {tiers} waits, none negative or endless"
            )
        self._service = service
        self._delays_s = tuple(delays_s)
        self._clock = clock

    def postponed(self, record: Record, reason: RetryLater) -> RawMessage | None:
        """The record for its next tier, or None after the last one."""
        attempt = record.attempt if isinstance(record, RetriedRecord) else 0
        if attempt == len(self._delays_s):
            return None
        added = {
            _FIRST: record.topic,
            "assay.retry.partition": str(record.partition),
            "assay.retry.offset": str(record.offset),
            "assay.retry.timestamp": str(record.timestamp_ms),
            "assay.retry.attempt": str(attempt + 1),
            NOT_BEFORE: str(math.ceil((self._clock() + self._delays_s[attempt]) * 1000)),
            "assay.retry.code": reason.code,
            "assay.retry.message": str(reason)[:_MESSAGE_BYTES],
        }
        tier = retry_name(record.topic, self._service, attempt + 1)
        return passed_on(record, tier, encoded(added))


def not_before_s(headers: Headers) -> float:
    """When a postponed record may be tried again, in seconds since 1970; 0 where it is not said."""
    try:
        return int(text_headers(headers)[NOT_BEFORE]) / 1000
    except (KeyError, ValueError):
        return 0.0


def original(record: Record) -> Record:
    """The record as it came first; a record that says nothing of its origin is left as it is."""
    names = [name for name, _ in record.headers]
    if _FIRST not in names:
        return record
    cut = len(names) - 1 - names[::-1].index(_FIRST)
    ours = text_headers(record.headers[cut:])
    try:
        partition, offset, timestamp_ms, attempt = (
            int(ours[f"assay.retry.{name}"])
            for name in ("partition", "offset", "timestamp", "attempt")
        )
    except (KeyError, ValueError):
        return record
    if origin_name(record.topic) != ours[_FIRST] or attempt < 1:
        return record
    return RetriedRecord(
        ours[_FIRST],
        partition,
        offset,
        timestamp_ms,
        record.key,
        record.value,
        record.headers[:cut],
        attempt,
    )


def retried_only(decode: Decoder) -> Decoder:
    """`decode` for what `original` could read; anything else on a retry topic is a dead letter."""

    def decode_retried(record: Record) -> Delivery[object]:
        if not isinstance(record, RetriedRecord):
            raise DeadLetter("a record on a retry topic without its origin", code="retry_headers")
        return decode(record)

    return decode_retried
