"""What consumer groups committed, in the order in which the broker took it (Apache Kafka only)."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer

from tests.fault.topic_reader import partitions_of

_TOPIC = "__consumer_offsets"
# Keys of other kinds are about groups and their members.
_COMMIT_KEYS = (0, 1)
_PREFIX = "assay."


@dataclass(frozen=True, slots=True)
class Commit:
    """`offset` is the next that the group will read of the partition."""

    group: str
    topic: str
    partition: int
    offset: int


async def read_commits(bootstrap: str) -> list[Commit]:
    """Of the services' groups; a group's are in order. LookupError where none ever committed."""
    tps = await partitions_of(bootstrap, [_TOPIC])
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="none", fetch_max_wait_ms=50
    )
    await consumer.start()
    try:
        consumer.assign(tps)
        ends = await consumer.end_offsets(tps)
        for tp, low in (await consumer.beginning_offsets(tps)).items():
            consumer.seek(tp, low)
        found: list[Commit] = []
        while [tp for tp in tps if await consumer.position(tp) < ends[tp]]:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += (c for r in records if (c := commit_of(r.key, r.value)) is not None)
        return found
    finally:
        await consumer.stop()


def commit_of(key: bytes | None, value: bytes | None) -> Commit | None:
    """A record of the offsets topic; None where it is no commit of a service."""
    if not key or not value or struct.unpack_from(">h", key)[0] not in _COMMIT_KEYS:
        return None
    group, at = _string(key, 2)
    topic, at = _string(key, at)
    if not group.startswith(_PREFIX):
        return None
    (partition,) = struct.unpack_from(">i", key, at)
    (offset,) = struct.unpack_from(">q", value, 2)
    return Commit(group, topic, partition, offset)


def steps_back(commits: Iterable[Commit]) -> Counter[str]:
    """By group, commits lower than the one before of the same partition. Each costs repeats and
    no record: a request that the network held up may do it, and so may a process whose
    partitions are another's."""
    last: dict[tuple[str, str, int], int] = {}
    found: Counter[str] = Counter()
    for commit in commits:
        place = (commit.group, commit.topic, commit.partition)
        found[commit.group] += commit.offset < last.get(place, 0)
        last[place] = commit.offset
    return +found


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length
