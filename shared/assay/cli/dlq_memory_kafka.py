"""Which dead letters have been replayed: kept by the broker, beside nothing else.

A consumer group nobody is a member of holds, per dead-letter partition, the offsets in its
commit's metadata, as ranges: `0-41,44,50-52`. Forgetting is harmless, a second replay changes
nothing (the ids are the same); so the oldest are dropped where 4 KB do not hold them all, and a
broker may drop the group after its `offsets.retention.minutes`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from assay.connection import connected
from assay.dead_letters import Place
from assay.errors import BrokerError

GROUP = "assay.dlq-replay"
_METADATA_BYTES = 4_000
_RUN = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")
_LONGEST_RUN = 10_000_000


def ranges(offsets: Iterable[int], limit: int = _METADATA_BYTES) -> str:
    """Offsets as text of at most `limit` characters; the highest are kept."""
    parts: list[str] = []
    room = limit + 1
    for first, last in reversed(_runs(sorted(set(offsets)))):
        part = str(first) if first == last else f"{first}-{last}"
        room -= len(part) + 1
        if room < 0:
            break
        parts.append(part)
    return ",".join(reversed(parts))


def offsets_of(text: str) -> set[int]:
    """The inverse; a text that is none of ours says nothing."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        run = _RUN.fullmatch(part)
        if run is None:
            return set()
        first, last = int(run[1]), int(run[2] or run[1])
        if last - first > _LONGEST_RUN:
            return set()
        found.update(range(first, last + 1))
    return found


def _runs(offsets: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs


class ReplayMemory:
    """Which dead letters of some topics have been replayed."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._known: dict[TopicPartition, set[int]] = {}

    def __contains__(self, place: Place) -> bool:
        return place.offset in self._known.get(_tp(place), ())

    async def load(self, topics: Collection[str]) -> None:
        """Raises BrokerError where the broker does not answer."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await connected(admin.start, admin.close, self._bootstrap)
        try:
            described = await admin.describe_topics(sorted(topics))
            tps = [
                TopicPartition(topic["topic"], partition["partition"])
                for topic in described
                for partition in topic["partitions"]
            ]
            found: dict[Any, Any] = await admin.list_consumer_group_offsets(GROUP, partitions=tps)
        except KafkaError as error:
            raise BrokerError(f"Kafka at {self._bootstrap}: {error!r}") from error
        finally:
            await admin.close()
        self._known = {tp: offsets_of(kept.metadata or "") for tp, kept in found.items()}

    async def add(self, places: Collection[Place]) -> None:
        """Remember them; raises BrokerError where the broker does not take it."""
        changed = {_tp(place) for place in places}
        for place in places:
            self._known.setdefault(_tp(place), set()).add(place.offset)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, group_id=GROUP, enable_auto_commit=False
        )
        await connected(consumer.start, consumer.stop, self._bootstrap)
        try:
            consumer.assign(list(changed))
            await consumer.commit(
                {
                    tp: OffsetAndMetadata(max(self._known[tp]) + 1, ranges(self._known[tp]))
                    for tp in changed
                }
            )
        except KafkaError as error:
            raise BrokerError(f"Kafka at {self._bootstrap}: {error!r}") from error
        finally:
            await consumer.stop()


def _tp(place: Place) -> TopicPartition:
    return TopicPartition(place.topic, place.partition)
