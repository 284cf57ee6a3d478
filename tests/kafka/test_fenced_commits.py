"""A process that its group gave up does not set back what another has committed (issue 6: no
commit from an old assignment)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError

from assay_runtime.consumer import group_consumer
from assay_runtime.settings import KafkaSection
from assay_runtime.topic_admin import TopicSpec, ensure_topics
from deploy.kafka.broker import Broker

TOPIC, GROUP = "fenced.test", "assay.fenced.test"
PLACE = TopicPartition(TOPIC, 0)


class CommitsLast(ConsumerRebalanceListener):  # type: ignore[misc]
    """Commits 5 before partitions go and once more where that failed, as a pipeline does; another
    that had them meanwhile has committed 10."""

    def __init__(self, consumer: AIOKafkaConsumer, other: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._other = other
        self.refused = 0
        self.assigned = asyncio.Event()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        if revoked:
            await self._other.commit({PLACE: 10})
        for _ in range(2 if revoked else 0):
            try:
                await self._consumer.commit({PLACE: 5})
            except CommitFailedError:
                self.refused += 1

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.assigned.set()


async def test_a_member_thrown_out_commits_nothing(kafka_broker: Broker) -> None:
    await ensure_topics(kafka_broker.bootstrap, [TopicSpec(TOPIC, 1, 1)])
    kafka = KafkaSection(bootstrap=kafka_broker.bootstrap, session_timeout_ms=1_000)
    lost = group_consumer(kafka, GROUP, "lost")
    other = AIOKafkaConsumer(
        bootstrap_servers=kafka_broker.bootstrap, group_id=GROUP, enable_auto_commit=False
    )
    listener = CommitsLast(lost, other)
    lost.subscribe([TOPIC], listener=listener)
    async with lost, other:
        await asyncio.wait_for(listener.assigned.wait(), 20)
        await lost.commit({PLACE: 5})
        listener.assigned.clear()
        other.assign([PLACE])
        time.sleep(2.5)
        await asyncio.wait_for(listener.assigned.wait(), 20)
        assert listener.refused == 2
        assert await other.committed(PLACE) == 10
