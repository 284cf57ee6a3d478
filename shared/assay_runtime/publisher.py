"""Confirmed, ordered publishing on one idempotent producer."""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Sequence
from typing import Any, Protocol

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from prometheus_client import Counter

from assay.envelope import Headers, Message
from assay.topics import catalogue
from assay_runtime import metrics
from assay_runtime.failures import DeadLetter, Pause, Stop
from assay_runtime.settings import KafkaSection

log = structlog.get_logger()

_FLUSH_S = 5.0
# traceparent, added when a message is sent.
_TRACE = ("traceparent", b"0" * 55)


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


class Publisher:
    """Sends in order and returns when the broker has confirmed everything.

    `await send()` in sequence keeps the order per key; one gather waits for all confirmations
    (research/kafka-runtime point 7). An idempotent producer never gives up on a batch by itself,
    so a confirmation that takes longer than `send_deadline_s` ends the process (point 8).
    """

    def __init__(self, kafka: KafkaSection, client_id: str, pipeline: str) -> None:
        self._kafka = kafka
        self._client_id = client_id
        self._pipeline = pipeline
        self._producer: AIOKafkaProducer | None = None
        self._limits = {
            topic.name: min(topic.record_bytes, kafka.max_request_bytes)
            for topic in catalogue().everything()
        }
        self._published: dict[str, Counter] = {}

    async def start(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._kafka.bootstrap,
            client_id=self._client_id,
            enable_idempotence=True,
            acks="all",
            compression_type=self._kafka.compression or None,
            linger_ms=self._kafka.linger_ms,
            # One produce request per node is in flight, so throughput comes from batch size.
            max_batch_size=262_144,
            max_request_size=self._kafka.max_request_bytes,
        )
        try:
            await producer.start()
        except BaseException:
            await producer.stop()
            raise
        self._producer = producer

    async def open(self) -> None:
        """`start` for `opened`: a broker that is away is waited for."""
        try:
            await self.start()
        except (KafkaError, OSError) as error:
            raise Pause("broker", f"{self._kafka.bootstrap}: {error}") from error

    async def close(self) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Flush and close; what cannot be flushed now was confirmed to nobody."""
        if self._producer is None:
            return
        try:
            async with asyncio.timeout(_FLUSH_S):
                await self._producer.stop()
        except (KafkaError, TimeoutError) as error:
            log.warning("producer_not_closed", pipeline=self._pipeline, error=repr(error))

    def check(self, message: Outgoing) -> None:
        """DeadLetter for a message that its topic would not take: that is the record's failure.

        Asked before anything of a record is sent, so that a record is published whole or not at
        all; and a refusal by the broker would leave the producer unusable (point 8).
        """
        size = DefaultRecordBatchBuilder.estimate_size_in_bytes(
            message.key, message.value, [*message.headers, _TRACE]
        )
        limit = self._limits.get(message.topic, self._kafka.max_request_bytes)
        if size > limit:
            raise DeadLetter(
                f"an output for {message.topic} has {size} bytes, more than {limit}",
                code="output_too_large",
            )

    async def _enqueue(self, message: Outgoing, traceparent: str) -> asyncio.Future[Any]:
        """Hand one message to the producer, in order; the future is its confirmation."""
        assert self._producer is not None, "publisher is not started"  # noqa: S101
        headers = [*message.headers, ("traceparent", traceparent.encode())]
        try:
            async with asyncio.timeout(self._kafka.send_deadline_s):
                while True:
                    try:
                        future: asyncio.Future[Any] = await self._producer.send(
                            message.topic, value=message.value, key=message.key, headers=headers
                        )
                    except KafkaTimeoutError:
                        continue  # no room in the buffer while the broker is away
                    return future
        except MessageSizeTooLargeError as error:
            raise DeadLetter(str(error), code="output_too_large") from error
        except (KafkaError, TimeoutError) as error:
            raise Stop(f"producer cannot send to {message.topic}: {error!r}") from error

    async def send(self, outgoing: Sequence[tuple[Outgoing, str]]) -> list[asyncio.Future[Any]]:
        """Hand checked (message, traceparent) pairs to the producer, in order; `confirm` must
        follow, and what is sent after this returns stands behind them."""
        futures: list[asyncio.Future[Any]] = []
        try:
            for message, trace in outgoing:
                futures.append(await self._enqueue(message, trace))
        except BaseException:
            _abandon(futures)
            raise
        return futures

    async def confirm(self, futures: Sequence[asyncio.Future[Any]]) -> None:
        """Wait until the broker has all of them; anything else is Stop."""
        if not futures:
            return
        try:
            async with asyncio.timeout(self._kafka.send_deadline_s):
                confirmed = await asyncio.gather(*futures)
        except TimeoutError as error:
            raise Stop(
                f"the broker confirmed nothing for {self._kafka.send_deadline_s:g} s"
            ) from error
        except KafkaError as error:
            raise Stop(f"the producer is unusable: {error!r}") from error
        for topic, count in Tally(metadata.topic for metadata in confirmed).items():
            self._counter(topic).inc(count)

    async def publish(self, messages: Sequence[tuple[Message, str]]) -> None:
        """Check, send and confirm: DeadLetter, with nothing sent, for a message too large."""
        for message, _ in messages:
            self.check(message)
        await self.confirm(await self.send(messages))

    def _counter(self, topic: str) -> Counter:
        counter = self._published.get(topic)
        if counter is None:
            counter = self._published[topic] = metrics.PUBLISHED.labels(self._pipeline, topic)
        return counter


def _abandon(futures: Sequence[asyncio.Future[Any]]) -> None:
    """Nobody will ask for these confirmations; the records are repeated."""
    for future in futures:
        future.cancel()
