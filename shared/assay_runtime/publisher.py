"""Confirmed, ordered publishing on one idempotent producer."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from itertools import chain

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from prometheus_client import Counter

from assay.envelope import Message
from assay.topics import catalogue
from assay_runtime import compression, metadata_updates, metrics
from assay_runtime.failures import DeadLetter, Pause, Stop
from assay_runtime.record_batches import Outgoing, RecordBatches, Sent, with_trace
from assay_runtime.settings import KafkaSection

compression.install()
metadata_updates.install()
log = structlog.get_logger()

_FLUSH_S = 5.0
# What the broker has not confirmed for so long is named in readiness.
_LATE_S = 5.0
# traceparent, added when a message is sent.
_TRACE = ("traceparent", b"0" * 55)


class Publisher:
    """Sends in order and returns when the broker has confirmed everything.

    `await send()` in sequence keeps the order per key; one gather waits for all confirmations
    (research/kafka-runtime point 7). An idempotent producer never gives up on a batch by itself,
    so a confirmation that takes longer than `send_deadline_s` ends the process (point 8).

    `whole_batches` is for a caller that sends much at once and waits for it before it sends
    again: its messages become record batches here. Without it many callers may send at once, and
    what they send lingers for company.
    """

    def __init__(
        self, kafka: KafkaSection, client_id: str, pipeline: str, *, whole_batches: bool = False
    ) -> None:
        self._kafka = kafka
        self._whole_batches = whole_batches
        self._client_id = client_id
        self._pipeline = pipeline
        self._producer: AIOKafkaProducer | None = None
        self._limits = {
            topic.name: min(topic.record_bytes, kafka.max_request_bytes)
            for topic in catalogue().on_broker()
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
        # aiokafka fails what waits 40 s for a partition without a leader: `confirm` decides that.
        producer._message_accumulator._batch_ttl = math.inf
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

    async def send(self, outgoing: Sequence[tuple[Outgoing, str]]) -> list[Sent]:
        """Hand checked (message, traceparent) pairs to the producer, in order; `confirm` must
        follow, and what is sent after this returns stands behind them."""
        sent: list[Sent] = []
        if not outgoing:
            return sent
        try:
            async with asyncio.timeout(self._kafka.send_deadline_s):
                await self._hand_over(outgoing, sent)
        except BaseException as error:
            _abandon(sent)
            if isinstance(error, MessageSizeTooLargeError):
                raise DeadLetter(str(error), code="output_too_large") from error
            if isinstance(error, KafkaError | TimeoutError):
                topics = ", ".join(sorted({message.topic for message, _ in outgoing}))
                raise Stop(f"producer cannot send to {topics}: {error!r}") from error
            raise
        return sent

    async def _hand_over(self, outgoing: Sequence[tuple[Outgoing, str]], sent: list[Sent]) -> None:
        assert self._producer is not None, "publisher is not started"  # noqa: S101
        if self._whole_batches:
            await RecordBatches(self._producer).send(outgoing, sent)
            return
        for message, trace in outgoing:
            headers = with_trace(message, trace)
            while True:
                try:
                    confirmation = await self._producer.send(
                        message.topic, value=message.value, key=message.key, headers=headers
                    )
                except KafkaTimeoutError:
                    continue  # no room in the buffer while the broker is away
                break
            sent.append(Sent(confirmation, message.topic, 1))

    async def confirm(self, sent: Sequence[Sent]) -> None:
        """Wait until the broker has all of them; anything else is Stop."""
        if not sent:
            return
        try:
            async with asyncio.timeout(self._kafka.send_deadline_s):
                await asyncio.gather(*(one.confirmation for one in sent))
        except TimeoutError as error:
            patience_s = self._kafka.send_deadline_s
            late = self._late(patience_s / 2)
            raise Stop(f"the broker confirmed nothing for {patience_s:g} s: {late}") from error
        except KafkaError as error:
            raise Stop(f"the producer is unusable: {error!r}") from error
        for one in sent:
            self._counter(one.topic).inc(one.records)

    async def check_confirmed(self) -> str | None:
        """For readiness: names the partitions that cannot be written to, so that all wait."""
        late = self._late(_LATE_S)
        return f"not confirmed for more than {_LATE_S:g} s: {late}" if late else None

    def _late(self, after_s: float) -> str:
        """`topic/0, topic/3`, from the producer's own buffer: nothing is noted as it is sent."""
        if self._producer is None:
            return ""
        buffer = self._producer._message_accumulator
        since = time.monotonic() - after_s
        unsent = (batch for batches in buffer._batches.values() for batch in batches)
        late = {b.tp for b in chain(unsent, buffer._pending_batches) if b._ctime < since}
        return ", ".join(f"{topic}/{partition}" for topic, partition in sorted(late))

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


def _abandon(sent: Sequence[Sent]) -> None:
    """Nobody will ask for these confirmations; the records are repeated."""
    for one in sent:
        one.confirmation.cancel()
