"""aiokafka's consumer with its defaults put right (research/kafka-runtime, points 4, 12, 16)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from assay_runtime import (
    bounded_decompression,
    bounded_polls,
    fenced_commits,
    fetched_records,
    lenient_records,
    metadata_updates,
)
from assay_runtime.settings import KafkaSection

bounded_decompression.install()
lenient_records.install()
fetched_records.install()
bounded_polls.install()
fenced_commits.install()
metadata_updates.install()

# `busy_stall_s` replaces the poll interval, which would throw a waiting window out of its group.
_POLL_INTERVAL_MS = 86_400_000
# Of one partition in one answer, compressed: one to two thousand small events, more than a poll
# takes. More would be memory, and a lane's slots full of one partition. A record batch that is
# larger comes whole when its partition stands first in a fetch (KIP-74), and aiokafka changes
# the order each time.
_PARTITION_BYTES = 262_144
# Of all partitions together; the answer is in memory twice while it is taken apart.
_FETCH_BYTES = 4_194_304
# What a rebalance may take beside the drain: giving up what is late, and the commit.
_REBALANCE_MARGIN_S = 15


def group_consumer(kafka: KafkaSection, group: str, client_id: str) -> AIOKafkaConsumer:
    """A consumer that commits nothing and resets nothing by itself; not started yet."""
    return AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap,
        client_id=client_id,
        group_id=group,
        key_deserializer=fetched_records.as_records,
        enable_auto_commit=False,
        auto_offset_reset="none",
        session_timeout_ms=kafka.session_timeout_ms,
        heartbeat_interval_ms=max(300, kafka.session_timeout_ms // 5),
        rebalance_timeout_ms=int((kafka.drain_s + _REBALANCE_MARGIN_S) * 1000),
        max_poll_interval_ms=_POLL_INTERVAL_MS,
        fetch_max_wait_ms=kafka.fetch_wait_ms,
        max_partition_fetch_bytes=_PARTITION_BYTES,
        fetch_max_bytes=_FETCH_BYTES,
        metadata_max_age_ms=60_000,
    )


async def stop(consumer: Any) -> None:
    """Leave the group and close the connections.

    aiokafka cancels the fetches under way and awaits them: where one waits to be repeated, its
    cancellation comes out of here and the connections stay open.
    """
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        for fetch in consumer._fetcher._pending_tasks:
            fetch.cancel()
        await consumer._client.close()


async def committed_offsets(
    consumer: Any, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The group's offsets with their metadata, in one request; partitions it has none of are
    left out. aiokafka's own `committed` asks for one partition and drops the metadata."""
    found: dict[TopicPartition, OffsetAndMetadata]
    found = await consumer._coordinator.fetch_committed_offsets(partitions)
    return found
