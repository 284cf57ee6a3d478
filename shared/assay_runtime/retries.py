"""Postponed records: where they go, and how they come back as what they were (DESIGN §3)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from assay.envelope import Headers, text_headers
from assay.retry_headers import FIRST, NOT_BEFORE, behind_last, retry_headers
from assay.topics import origin_name, retry_name
from assay_runtime.failures import DeadLetter, RetryLater
from assay_runtime.raw_message import RawMessage, passed_on
from assay_runtime.records import Decoder, Delivery, Record
from assay_runtime.settings import SettingsError


class RetriedRecord(Record):
    """A record read from a retry topic as it came first: topic, partition, offset, time and
    headers are the origin's, so that whoever makes an id of them makes the same again."""

    __slots__ = ()


def retry_topics(topics: Sequence[str], service: str, tiers: int) -> tuple[str, ...]:
    """The retry topics that a service reads for these topics, by tier."""
    numbers = range(1, tiers + 1)
    return tuple(retry_name(topic, service, number) for number in numbers for topic in topics)


class Retries:
    """Where a postponed record goes: one tier per delay, in seconds, then nowhere. `tiers` is how
    many retry topics there are."""

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
        if attempt >= len(self._delays_s):
            return None
        added = retry_headers(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            attempt=attempt + 1,
            not_before_ms=math.ceil((self._clock() + self._delays_s[attempt]) * 1000),
            code=reason.code,
            message=str(reason),
        )
        return passed_on(record, retry_name(record.topic, self._service, attempt + 1), added)


def not_before_s(headers: Headers) -> float:
    """When a postponed record may be tried again, in seconds since 1970; 0 where it is not said."""
    try:
        return int(text_headers(headers)[NOT_BEFORE]) / 1000
    except (KeyError, ValueError, OverflowError):  # a number of hundreds of digits
        return 0.0


def original(record: Record) -> Record:
    """The record as it came first; a record that says nothing of its origin is left as it is."""
    cut = behind_last(record.headers, FIRST)
    if cut is None:
        return record
    ours = text_headers(record.headers[cut:])
    try:
        partition, offset, timestamp_ms, attempt = (
            int(ours[f"assay.retry.{name}"])
            for name in ("partition", "offset", "timestamp", "attempt")
        )
    except (KeyError, ValueError):
        return record
    if origin_name(record.topic) != ours[FIRST] or attempt < 1:
        return record
    return RetriedRecord(
        ours[FIRST],
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
