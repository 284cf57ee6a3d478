"""Records of earlier runs back onto an embedded broker, and the wait that makes sure of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import TopicPartition

from assay.connection import idempotent_producer, stopped
from assay.topics import catalogue
from assay_runtime.consumer import committed_offsets, group_consumer
from assay_runtime.settings import KafkaSection
from deploy.dev.kept_records import Kept
from deploy.dev.plan import EMBEDDED_PARTITIONS

# Confirmed together; few, for each may have megabytes.
_AT_ONCE = 20
_LOOK_S = 0.05


async def publish(bootstrap: str, records: Iterable[Kept]) -> int:
    """Publish in order; how many. Waits for as long as the broker makes writers wait."""
    producer = idempotent_producer(bootstrap)
    await producer.start()
    try:
        count, waiting = 0, list[Any]()
        following = iter(records)
        while (record := await asyncio.to_thread(next, following, None)) is not None:
            waiting.append(
                await producer.send(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    headers=record.headers,
                )
            )
            count += 1
            if len(waiting) == _AT_ONCE:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)
    finally:
        await stopped(producer)
    return count


async def all_read(bootstrap: str, service: str, patience_s: float) -> bool:
    """Whether a sink has read, and committed, all that its topics hold, after a while at most."""
    topics = [topic.name for topic in catalogue().everything() if service in topic.sinks]
    places = [TopicPartition(name, n) for name in topics for n in range(EMBEDDED_PARTITIONS)]
    consumer = group_consumer(KafkaSection(bootstrap=bootstrap), f"assay.{service}", "stack")
    try:
        async with asyncio.timeout(patience_s):
            await consumer.start()
            while True:
                ends = await consumer.end_offsets(places)
                read = await committed_offsets(consumer, places)
                if all(tp in read and read[tp].offset >= end for tp, end in ends.items() if end):
                    return True
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        return False
    finally:
        await consumer.stop()
