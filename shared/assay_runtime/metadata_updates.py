"""aiokafka asks for metadata without a pause for as long as a partition has no leader.

Its fetcher, and its sender while something waits for such a partition, begin a round as soon as
the one before has ended: hundreds a second, against the brokers that are left.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiokafka.client import AIOKafkaClient

# As long as aiokafka waits before it repeats anything else.
_PAUSE_S = 0.1

_update = AIOKafkaClient._metadata_update


def install() -> None:
    """For every client of this process. AttributeError where aiokafka asks elsewhere."""
    AIOKafkaClient._metadata_update = _paced


async def _paced(client: Any, cluster: Any, topics: Any) -> bool:
    """An update as aiokafka's; one behind another waits while a leader is missed."""
    if cluster is client.cluster and _misses_a_leader(cluster):
        rest = getattr(client, "_assay_updated_at", 0.0) + _PAUSE_S - time.monotonic()
        await asyncio.sleep(max(0.0, rest))
    try:
        return bool(await _update(client, cluster, topics))
    finally:
        client._assay_updated_at = time.monotonic()


def _misses_a_leader(cluster: Any) -> bool:
    return any(
        partition.leader == -1
        for partitions in cluster._partitions.values()
        for partition in partitions.values()
    )
