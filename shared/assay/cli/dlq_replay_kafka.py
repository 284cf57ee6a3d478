"""One run of `assay dlq replay`: dead letters back to where they came from.

What is sent is the record as it was first: its bytes, key, headers and partition, without what the
runtime added. The ids are the same, so a replay is the same request again, and a second one
changes nothing: request table, ledger and evidence know the id.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from assay.cli.dlq_memory_kafka import ReplayMemory
from assay.cli.dlq_reader_kafka import DeadLetterReader
from assay.connection import connected
from assay.dead_letters import DeadLetterView, Place
from assay.envelope import Headers
from assay.errors import AssayError, BrokerError
from assay.events import WalletEventSubmitted
from assay.identity import identify
from assay.retry_headers import retry_headers
from assay.topics import catalogue, retry_name

_AT_ONCE = 200


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


@dataclass(slots=True)
class Tally:
    """What a run did."""

    replayed: int = 0
    refused: list[tuple[Place, str]] = field(default_factory=list)


class Replay:
    """Sends the dead letters of one topic again; an async context manager."""

    def __init__(self, bootstrap: str, reader: DeadLetterReader, memory: ReplayMemory) -> None:
        self._bootstrap = bootstrap
        self._reader = reader
        self._memory = memory
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            acks="all",
            compression_type="zstd",
            linger_ms=5,
            max_request_size=8_388_608,
        )
        await connected(self._producer.start, self._producer.stop, self._bootstrap)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._producer is not None:
            await self._producer.stop()

    async def run(
        self,
        letters: AsyncIterator[DeadLetterView],
        tell: Callable[[DeadLetterView, Outgoing], None],
    ) -> Tally:
        """Send what comes, in its order; what is confirmed is remembered."""
        tally = Tally()
        waiting: list[tuple[Place, Any]] = []
        async for letter in letters:
            place = letter.record.place
            try:
                outgoing = await self.outgoing(letter)
                waiting.append((place, await self._send(outgoing)))
            except NotReplayable as reason:
                tally.refused.append((place, str(reason)))
                continue
            tell(letter, outgoing)
            if len(waiting) >= _AT_ONCE:
                await self._confirm(waiting, tally)
        await self._confirm(waiting, tally)
        return tally

    async def rehearse(
        self,
        letters: AsyncIterator[DeadLetterView],
        tell: Callable[[DeadLetterView, Outgoing], None],
    ) -> Tally:
        """`run` without sending anything; it need not be entered for this."""
        tally = Tally()
        async for letter in letters:
            try:
                tell(letter, await self.outgoing(letter))
            except NotReplayable as reason:
                tally.refused.append((letter.record.place, str(reason)))
            else:
                tally.replayed += 1
        return tally

    async def _confirm(self, waiting: list[tuple[Place, Any]], tally: Tally) -> None:
        if not waiting:
            return
        try:
            for _, sent in waiting:
                await sent
        except KafkaError as error:
            raise BrokerError(f"Kafka at {self._bootstrap} refused a record: {error!r}") from error
        await self._memory.add([place for place, _ in waiting])
        tally.replayed += len(waiting)
        waiting.clear()

    async def _send(self, outgoing: Outgoing) -> Any:
        assert self._producer is not None, "enter it first"  # noqa: S101
        try:
            known = await self._producer.partitions_for(outgoing.topic)
            return await self._producer.send(
                outgoing.topic,
                value=outgoing.value,
                key=outgoing.key,
                headers=list(outgoing.headers),
                partition=outgoing.partition if outgoing.partition in known else None,
            )
        except MessageSizeTooLargeError as error:
            raise NotReplayable(str(error)) from error
        except KafkaError as error:
            raise BrokerError(f"Kafka at {self._bootstrap}: {error!r}") from error

    async def outgoing(self, letter: DeadLetterView) -> Outgoing:
        """The record as it was first; NotReplayable where that is not known any more."""
        origin = letter.origin
        if origin is None:
            raise NotReplayable("it does not say where it came from")
        if origin.topic not in {topic.name for topic in catalogue()}:
            raise NotReplayable(f"it came from {origin.topic}, which the catalogue does not know")
        key, value, headers = letter.record.key, letter.record.value, letter.headers
        if letter.left_out_sha256 is not None:
            whole = await self._reader.at(origin)
            if whole is None:
                raise NotReplayable(f"it was too large to be kept, and {origin} is gone")
            if hashlib.sha256(whole.value or b"").hexdigest() != letter.left_out_sha256:
                raise NotReplayable(f"it was too large to be kept, and {origin} is another record")
            key, value, headers = whole.key, whole.value, whole.headers
        if self._named_by_place(origin, headers, value or b""):
            return self._by_retry_topic(letter, origin, key, value, headers)
        return Outgoing(origin.topic, origin.partition, key, value, headers)

    @staticmethod
    def _named_by_place(origin: Place, headers: Headers, value: bytes) -> bool:
        """Whether the request's id was made of the record's place: sent to another place, it
        would be another request."""
        if origin.topic != WalletEventSubmitted.type:
            return False
        who = identify(
            origin.topic, origin.partition, origin.offset, headers, value, tenant="default"
        )
        return who.event_id == who.request_id

    @staticmethod
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
