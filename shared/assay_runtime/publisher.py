"""Confirmed, ordered publishing on one idempotent producer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordTooLargeError

from assay.envelope import Message
from assay_runtime import metrics
from assay_runtime.failures import DeadLetter, Pause, Stop
from assay_runtime.settings import KafkaSection

log = structlog.get_logger()


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

    async def start(self) -> None:
        self._producer = AIOKafkaProducer(
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
            await self._producer.start()
        except BaseException:
            await self._producer.stop()
            raise

    async def open(self) -> None:
        """`start` for `opened`: a broker that is away is waited for."""
        try:
            await self.start()
        except (KafkaError, OSError) as error:
            raise Pause("broker", f"{self._kafka.bootstrap}: {error}") from error

    async def close(self) -> None:
        await self.stop()

    async def stop(self) -> None:
        if self._producer is not None:
            await self._producer.stop()

    async def enqueue(self, message: Message, traceparent: str) -> asyncio.Future[object]:
        """Hand one message to the producer, in order; the future is its confirmation.

        A message that no broker would take raises DeadLetter: that is the record's failure.
        """
        assert self._producer is not None, "publisher is not started"  # noqa: S101
        try:
            future: asyncio.Future[object] = await self._producer.send(
                message.topic,
                value=message.value,
                key=message.key,
                headers=[*message.headers, ("traceparent", traceparent.encode())],
            )
        except MessageSizeTooLargeError as error:
            raise DeadLetter(
                f"an output for {message.topic} has {len(message.value)} bytes, more than "
                f"{self._kafka.max_request_bytes}",
                code="output_too_large",
            ) from error
        except KafkaError as error:
            raise Stop(f"producer cannot send to {message.topic}: {error!r}") from error
        metrics.PUBLISHED.labels(self._pipeline, message.topic).inc()
        return future

    async def confirm(self, futures: Sequence[asyncio.Future[object]]) -> None:
        """Wait until the broker has all of them; anything else is Stop."""
        if not futures:
            return
        try:
            async with asyncio.timeout(self._kafka.send_deadline_s):
                await asyncio.gather(*futures)
        except TimeoutError as error:
            raise Stop(
                f"the broker confirmed nothing for {self._kafka.send_deadline_s:g} s"
            ) from error
        except RecordTooLargeError as error:
            raise Stop(f"the broker refused a record as too large: {error!r}") from error
        except KafkaError as error:
            raise Stop(f"the producer is unusable: {error!r}") from error

    async def publish(self, messages: Sequence[tuple[Message, str]]) -> None:
        """Send (message, traceparent) pairs in order and wait for every confirmation."""
        futures = [await self.enqueue(message, trace) for message, trace in messages]
        await self.confirm(futures)
