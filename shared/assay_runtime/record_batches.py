"""Everything that a handled batch publishes, as one record batch per partition, sent at once.

A message handed to the producer alone costs a future, a timer and a look at the metadata, and
waits for company (linger). Here the company is known: batches are built whole, in order, and are
closed, so the producer sends them without waiting.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError
from aiokafka.producer.message_accumulator import BatchBuilder

from assay.envelope import Headers
from assay_runtime.partitioning import partitions_of


class Outgoing(Protocol):
    """What can be sent: a Message, or a dead letter, whose parts may be absent."""

    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class Sent(NamedTuple):
    """Records of one topic that the broker confirms together."""

    confirmation: asyncio.Future[Any]
    topic: str
    records: int


def with_trace(message: Outgoing, traceparent: str) -> list[tuple[str, bytes | None]]:
    """The headers as they go out."""
    return [*message.headers, ("traceparent", traceparent.encode())]


class _Topic:
    """Of one topic and one call: its batches by partition, and where its keys belong."""

    __slots__ = ("_partitions", "_placed", "batches")

    def __init__(self, partitions: int, keys: Iterable[bytes]) -> None:
        self.batches: dict[int, list[BatchBuilder]] = {}
        self._partitions = partitions
        self._placed = partitions_of(keys, partitions)

    def partition_of(self, key: bytes | None) -> int:
        return random.randrange(self._partitions) if key is None else self._placed[key]


class RecordBatches:
    """Builds and sends; the caller waits for the confirmations before it sends again, which is
    what keeps the order of a partition (research/kafka-runtime point 7)."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def send(self, outgoing: Sequence[tuple[Outgoing, str]], sent: list[Sent]) -> None:
        """Hand (message, traceparent) pairs over in order; what was is appended to `sent`."""
        built = await self._build(outgoing)
        # One request carries one batch of each partition: all the first ones, then the second.
        for turn in zip_longest(*built.values()):
            for (topic, partition), batch in zip(built, turn, strict=True):
                if batch is not None:
                    confirmation = await self._hand_over(batch, topic, partition)
                    sent.append(Sent(confirmation, topic, batch.record_count()))

    async def _build(
        self, outgoing: Sequence[tuple[Outgoing, str]]
    ) -> dict[tuple[str, int], list[BatchBuilder]]:
        built: dict[tuple[str, int], list[BatchBuilder]] = {}
        # Sets, because a wallet may have several events among what is sent.
        keys: dict[str, set[bytes]] = {}
        for message, _ in outgoing:
            of_topic = keys.setdefault(message.topic, set())
            if message.key is not None:
                of_topic.add(message.key)
        topics = {
            name: _Topic(len(await self._producer.partitions_for(name)), some)
            for name, some in keys.items()
        }
        for message, traceparent in outgoing:
            topic = topics[message.topic]
            partition = topic.partition_of(message.key)
            batches = topic.batches.get(partition)
            if batches is None:
                batches = topic.batches[partition] = [self._producer.create_batch()]
                built[message.topic, partition] = batches
            headers = with_trace(message, traceparent)
            if _append(batches[-1], message, headers) is None:
                batches.append(self._producer.create_batch())
                # An empty batch takes one record of any size; the size was checked before.
                _append(batches[-1], message, headers)
        return built

    async def _hand_over(
        self, batch: BatchBuilder, topic: str, partition: int
    ) -> asyncio.Future[Any]:
        batch.close()
        while True:
            try:
                confirmation: asyncio.Future[Any] = await self._producer.send_batch(
                    batch, topic, partition=partition
                )
            except KafkaTimeoutError:
                continue  # the batch before it waits for a broker that is away
            return confirmation


def _append(batch: BatchBuilder, message: Outgoing, headers: Any) -> Any:
    return batch.append(timestamp=None, key=message.key, value=message.value, headers=headers)
