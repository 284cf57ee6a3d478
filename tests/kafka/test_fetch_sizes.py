"""Fetches are small, and records far larger than a fetch are read all the same."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from assay_runtime.bounded_polls import POLL_BYTES
from assay_runtime.consumer import group_consumer
from assay_runtime.settings import KafkaSection
from assay_runtime.topic_admin import TopicSpec, ensure_topics
from deploy.dev.broker import EmbeddedBroker

PARTITIONS = 4
# Twelve times a fetch of one partition; the embedded broker keeps 5 MB of each.
LARGE = 3_000_000


@pytest.fixture
def topic() -> str:
    return f"sizes.{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
async def bootstrap(request: pytest.FixtureRequest, topic: str) -> AsyncIterator[str]:
    if request.param == "embedded":
        with EmbeddedBroker([(topic, PARTITIONS)]) as broker:
            yield broker.bootstrap
    else:
        broker = request.getfixturevalue("kafka_broker")
        configs = {"max.message.bytes": "8388608"}
        await ensure_topics(broker.bootstrap, [TopicSpec(topic, PARTITIONS, 1, configs)])
        yield broker.bootstrap


async def test_a_record_larger_than_a_fetch_is_read(bootstrap: str, topic: str) -> None:
    """S3.8 takes 4 MiB of wallet data: at the head of every partition at once, small ones
    behind them, none is passed over and none blocks the rest."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, max_request_size=8_388_608
    )
    await producer.start()
    try:
        for partition in range(PARTITIONS):
            large = b"%d " % partition + os.urandom(LARGE)
            await producer.send_and_wait(topic, large, partition=partition)
        for number in range(400):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        await producer.flush()
    finally:
        await producer.stop()
    consumer = group_consumer(KafkaSection(bootstrap=bootstrap), f"g.{topic}", "c")
    seen = await _read(consumer, topic, 400 + PARTITIONS)
    assert sorted(len(value) > 1_000_000 for value in seen).count(True) == PARTITIONS
    assert len(set(seen)) == 400 + PARTITIONS


async def _read(consumer: AIOKafkaConsumer, topic: str, wanted: int) -> list[bytes]:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    await consumer.start()
    try:
        consumer.assign(places)
        lows = await consumer.beginning_offsets(places)
        for place in places:
            consumer.seek(place, lows[place])
        seen: list[bytes] = []
        async with asyncio.timeout(60):
            while len(seen) < wanted:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    seen += [record.value for record in records]
        return seen
    finally:
        await consumer.stop()


async def test_a_poll_is_bounded_in_bytes(bootstrap: str, topic: str) -> None:
    """Hundreds of megabytes that came compressed in one fetch stand in memory a few at a time;
    what is left over is handed out next, in order."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        max_request_size=8_388_608,
        compression_type="zstd",
    )
    await producer.start()
    try:
        for number in range(80):
            value = b"%d " % number + bytes(LARGE)
            await producer.send_and_wait(topic, value, partition=number % PARTITIONS)
    finally:
        await producer.stop()
    consumer = group_consumer(KafkaSection(bootstrap=bootstrap), f"g.{topic}", "c")
    seen, polls = await _polled(consumer, topic, 80)
    assert max(polls) <= POLL_BYTES + LARGE + 3
    for partition in range(PARTITIONS):
        own = [number for number in seen if number % PARTITIONS == partition]
        assert own == list(range(partition, 80, PARTITIONS))


async def _polled(
    consumer: AIOKafkaConsumer, topic: str, count: int
) -> tuple[list[int], list[int]]:
    """The records' numbers as they came, and how many bytes each poll brought."""
    seen: list[int] = []
    polls: list[int] = []
    await consumer.start()
    try:
        tps = [TopicPartition(topic, n) for n in range(PARTITIONS)]
        consumer.assign(tps)
        await consumer.seek_to_beginning()
        async with asyncio.timeout(30):
            while len(seen) < count:
                found = await consumer.getmany(timeout_ms=200, max_records=500)
                values = [record.value for records in found.values() for record in records]
                seen += [int(value.split(b" ")[0]) for value in values]
                polls.append(sum(map(len, values)))
    finally:
        await consumer.stop()
    return seen, polls
