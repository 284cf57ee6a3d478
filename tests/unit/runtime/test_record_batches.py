"""Record batches: one per partition, in order, nothing waits for company (research point 7)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError, OutOfOrderSequenceNumber
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from prometheus_client import REGISTRY

from assay.envelope import Message
from assay_runtime.failures import Stop
from assay_runtime.partitioning import partition_of
from assay_runtime.publisher import Publisher
from assay_runtime.settings import KafkaSection

PARTITIONS = 3


class BatchProducer:
    """Keeps the records of each batch as a consumer would read them; `script` says what each
    hand-over does first."""

    def __init__(self, batch_bytes: int) -> None:
        self.batch_bytes = batch_bytes
        self.batches: list[tuple[str, int, list[Any]]] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.script: list[BaseException | None] = []
        self.confirms = True
        self._message_accumulator = SimpleNamespace(_batches={}, _pending_batches=set())

    async def partitions_for(self, topic: str) -> set[int]:
        return set(range(PARTITIONS))

    def create_batch(self) -> BatchBuilder:
        return BatchBuilder(self.batch_bytes, 0)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> Any:
        if self.script and (error := self.script.pop(0)):
            raise error
        assert batch.closed(), "an open batch would linger"
        raw = MemoryRecords(bytes(batch._build()))
        self.batches.append((topic, partition, list(raw.next_batch())))  # type: ignore[call-overload]
        future = asyncio.get_running_loop().create_future()
        if self.confirms:
            future.set_result(None)
        self.futures.append(future)
        return future


def made(batch_bytes: int = 262_144) -> tuple[Publisher, BatchProducer]:
    kafka = KafkaSection(send_deadline_s=0.2)
    publisher = Publisher(kafka, "c", "batches-test", whole_batches=True)
    producer = BatchProducer(batch_bytes)
    publisher._producer = producer
    return publisher, producer


def trace(number: int) -> str:
    return f"00-{number + 1:032x}-{number + 1:016x}-01"


def outgoing(count: int, topic: str = "t", size: int = 10) -> list[tuple[Message, str]]:
    return [
        (
            Message(topic, b"key-%d" % (n % 7), b"%d " % n + b"x" * size, (("ce_id", b"%d" % n),)),
            trace(n),
        )
        for n in range(count)
    ]


async def test_a_batch_per_partition_with_every_record_in_order() -> None:
    """Keys go where Kafka's own producers put them; headers and trace context go along."""
    publisher, producer = made()
    sent = outgoing(60) + outgoing(20, "other")
    await publisher.publish(sent)
    places = [(topic, partition) for topic, partition, _ in producer.batches]
    assert len(places) == len(set(places)) == 2 * PARTITIONS
    for topic, partition, records in producer.batches:
        wanted = [
            (message.key, message.value, [*message.headers, ("traceparent", traced.encode())])
            for message, traced in sent
            if message.topic == topic and partition_of(message.key, PARTITIONS) == partition
        ]
        assert [(r.key, r.value, list(r.headers)) for r in records] == wanted


async def test_what_does_not_fit_goes_into_the_next_batch() -> None:
    """In order; and a record larger than any batch goes alone."""
    publisher, producer = made(batch_bytes=2_000)
    sent = outgoing(30, size=300) + outgoing(1, size=9_000)
    await publisher.publish(sent)
    arrived = [record.value for _, _, records in producer.batches for record in records]
    assert sorted(arrived) == sorted(message.value for message, _ in sent), "one is lost"
    assert max(len(records) for _, _, records in producer.batches) > 1
    for partition in range(PARTITIONS):
        values = [r.value for _, p, records in producer.batches if p == partition for r in records]
        numbers = [int(value.split()[0]) for value in values]
        assert numbers[:-1] == sorted(numbers[:-1])
        assert sum(len(value) > 9_000 for value in values) == (
            partition == partition_of(b"key-0", PARTITIONS)
        )
    firsts = [partition for _, partition, _ in producer.batches][:PARTITIONS]
    assert sorted(firsts) == list(range(PARTITIONS)), "one request carries one of each partition"


async def test_records_without_a_key_and_without_a_value() -> None:
    """A dead letter may lack either."""
    publisher, producer = made()
    bare = [Message("t", None, b"v", ()), Message("t", b"k", None, ())]  # type: ignore[arg-type]
    await publisher.publish([(message, trace(0)) for message in bare])
    found = {(r.key, r.value) for _, _, records in producer.batches for r in records}
    assert found == {(None, b"v"), (b"k", None)}
    for _ in range(60):
        await publisher.publish([(bare[0], trace(0))])
    assert {partition for _, partition, _ in producer.batches} == set(range(PARTITIONS))


def published() -> float:
    labels = {"pipeline": "batches-test", "topic": "t"}
    return REGISTRY.get_sample_value("assay_records_published_total", labels) or 0


async def test_counted_once_confirmed() -> None:
    publisher, producer = made()
    producer.confirms = False
    before = published()
    publish = asyncio.create_task(publisher.publish(outgoing(50)))
    await asyncio.sleep(0.01)
    assert (len(producer.futures), published()) == (PARTITIONS, before)
    for future in producer.futures:
        future.set_result(None)
    await publish
    assert published() == before + 50


async def test_a_producer_that_breaks_in_the_middle_ends_the_process() -> None:
    """What was handed over before is given up too: the records are repeated."""
    publisher, producer = made()
    producer.confirms = False
    producer.script = [None, OutOfOrderSequenceNumber()]
    with pytest.raises(Stop, match="cannot send to t"):
        await publisher.publish(outgoing(50))
    assert [future.cancelled() for future in producer.futures] == [True]


async def test_a_broker_that_is_away_is_waited_for() -> None:
    publisher, producer = made()
    producer.script = [KafkaTimeoutError(), None, KafkaTimeoutError(), None]
    await publisher.publish(outgoing(50))
    assert sum(len(records) for _, _, records in producer.batches) == 50
