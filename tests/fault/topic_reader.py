"""Every record of every topic, from the earliest kept to the end, with a consumer of our own."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from assay.topics import catalogue
from assay_runtime.records import Record
from tests.fault.seen import Seen, seen

_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class TopicLog:
    """Records by topic, each partition in offset order.

    `gone` counts by `topic/partition` what the broker has dropped: what is not there cannot be
    checked, and is not taken for right.
    """

    records: dict[str, list[Seen]]
    gone: dict[str, int] = field(default_factory=dict)

    def of(self, topic: str) -> list[Seen]:
        return self.records.get(topic, [])

    def with_earlier(self, earlier: TopicLog) -> TopicLog:
        """This log and what an earlier one of the same broker still had; nothing counts as gone
        that the earlier one had read to where this one begins."""
        records: dict[str, list[Seen]] = {}
        for topic in self.records.keys() | earlier.records.keys():
            places = {record.place: record for record in (*earlier.of(topic), *self.of(topic))}
            records[topic] = [places[place] for place in sorted(places)]
        gone = {}
        for name, low in self.gone.items():
            topic, _, number = name.rpartition("/")
            there = sum(
                record.partition == int(number) and record.offset < low
                for record in records.get(topic, ())
            )
            if there < low:
                gone[name] = low - there
        return TopicLog(records, gone)


async def read_topics(bootstrap: str, *, tenant: str = "default", log: str = "") -> TopicLog:
    """A snapshot up to the ends as they are when this is called.

    TimeoutError after a minute without a record where one should be.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=50,
        max_partition_fetch_bytes=8_388_608,
    )
    await consumer.start()
    try:
        return await _read(consumer, await partitions_of(bootstrap), tenant, log)
    finally:
        await consumer.stop()


async def end_offsets(
    bootstrap: str, topics: Collection[str] | None = None
) -> dict[tuple[str, int], int]:
    """The next offset of every partition of the topics; None: of all that evidence keeps."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    await consumer.start()
    try:
        tps = await partitions_of(bootstrap, topics)
        # Without an assignment each topic's leader is looked up alone, a tenth of a second each.
        consumer.assign(tps)
        ends = await consumer.end_offsets(tps)
        return {(tp.topic, tp.partition): offset for tp, offset in ends.items()}
    finally:
        await consumer.stop()


async def partitions_of(
    bootstrap: str, topics: Collection[str] | None = None
) -> list[TopicPartition]:
    """All partitions of the topics, None: of all that evidence keeps; LookupError where the broker
    lacks one."""
    if topics is None:
        topics = [topic.name for topic in catalogue().everything()]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        described = await admin.describe_topics(list(topics))
    finally:
        await admin.close()
    found = {topic["topic"]: topic["partitions"] for topic in described}
    if empty := [name for name, partitions in found.items() if not partitions]:
        raise LookupError(f"{bootstrap} has no {', '.join(sorted(empty))}")
    return [
        TopicPartition(name, number)
        for name in sorted(found)
        for number in sorted(partition["partition"] for partition in found[name])
    ]


async def _read(
    consumer: AIOKafkaConsumer, tps: list[TopicPartition], tenant: str, log: str
) -> TopicLog:
    consumer.assign(tps)
    lows = await consumer.beginning_offsets(tps)
    ends = await consumer.end_offsets(tps)
    records: dict[TopicPartition, list[Seen]] = defaultdict(list)
    left = {tp for tp in tps if lows[tp] < ends[tp]}
    for tp in tps:
        consumer.seek(tp, lows[tp])
        if tp not in left:
            consumer.pause(tp)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_S
    while left:
        for tp, batch in (await consumer.getmany(timeout_ms=200, max_records=2_000)).items():
            records[tp] += [
                seen(Record.of(raw), tenant=tenant, log=log)
                for raw in batch
                if raw.offset < ends[tp]
            ]
            deadline = loop.time() + _PATIENCE_S
            await asyncio.sleep(0)
        for tp in [tp for tp in left if await consumer.position(tp) >= ends[tp]]:
            left.discard(tp)
            consumer.pause(tp)
        if loop.time() > deadline:
            raise TimeoutError(f"no records for {_PATIENCE_S:g} s, {len(left)} partitions unread")
    by_topic: dict[str, list[Seen]] = defaultdict(list)
    for tp in tps:
        by_topic[tp.topic] += records[tp]
    gone = {f"{tp.topic}/{tp.partition}": low for tp, low in lows.items() if low > 0}
    return TopicLog(dict(by_topic), gone)
