"""What a replay sends for a dead letter: the record as it was first, its bytes, key, headers and
partition, without what the runtime added."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from assay.cli.dlq_memory_kafka import ReplayMemory
from assay.dead_letters import DeadLetterView, LetterRecord, Place
from assay.envelope import Headers
from assay.errors import AssayError
from assay.events import WalletEventSubmitted
from assay.identity import identify
from assay.retry_headers import retry_headers
from assay.topics import catalogue, retry_name


class Origins(Protocol):
    """Where the records stand that dead letters came from."""

    async def at(self, place: Place) -> LetterRecord | None: ...


class NotReplayable(AssayError):
    """This dead letter cannot be sent again; the message says why."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which dead letters are meant; None and 0 are no restriction. Times are milliseconds."""

    code: str | None = None
    request_id: str | None = None
    partition: int | None = None
    offset: int | None = None
    since_ms: int = 0
    again: bool = False

    def means(self, letter: DeadLetterView, memory: ReplayMemory) -> bool:
        place = letter.record.place
        return (
            self.code in (None, letter.code)
            and self.request_id in (None, letter.request_id)
            and self.partition in (None, place.partition)
            and self.offset in (None, place.offset)
            and (self.again or place not in memory)
        )


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be sent; `partition` None leaves the choice to the key."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


async def outgoing(letter: DeadLetterView, origins: Origins) -> Outgoing:
    """The record as it was first; NotReplayable where that is not known any more."""
    origin = letter.origin
    if origin is None:
        raise NotReplayable("it does not say where it came from")
    if origin.topic not in {topic.name for topic in catalogue()}:
        raise NotReplayable(f"it came from {origin.topic}, which the catalogue does not know")
    key, value, headers = letter.record.key, letter.record.value, letter.headers
    if letter.left_out_sha256 is not None:
        whole = await origins.at(origin)
        if whole is None:
            raise NotReplayable(f"it was too large to be kept, and {origin} is gone")
        if hashlib.sha256(whole.value or b"").hexdigest() != letter.left_out_sha256:
            raise NotReplayable(f"it was too large to be kept, and {origin} is another record")
        key, value, headers = whole.key, whole.value, whole.headers
    if _named_by_place(origin, headers, value or b""):
        return _by_retry_topic(letter, origin, key, value, headers)
    return Outgoing(origin.topic, origin.partition, key, value, headers)


def _named_by_place(origin: Place, headers: Headers, value: bytes) -> bool:
    """Whether the request's id was made of the record's place: sent to another place, it
    would be another request."""
    if origin.topic != WalletEventSubmitted.type:
        return False
    who = identify(origin.topic, origin.partition, origin.offset, headers, value, tenant="default")
    return who.event_id == who.request_id


def _by_retry_topic(
    letter: DeadLetterView, origin: Place, key: bytes | None, value: bytes | None,
    headers: Headers,
) -> Outgoing:  # fmt: skip
    """To the service alone, which sees the record at its first place."""
    if letter.service not in catalogue()[origin.topic].retries:
        raise NotReplayable("its id is its place, and its service has no retry topics")
    added = retry_headers(
        topic=origin.topic,
        partition=origin.partition,
        offset=origin.offset,
        timestamp_ms=letter.record.timestamp_ms,
        attempt=1,
        not_before_ms=0,
        code=letter.code,
        message="replayed",
    )
    tier = retry_name(origin.topic, letter.service, 1)
    return Outgoing(tier, origin.partition, key, value, headers + added)
