"""A bus for delivery tests: fresh topics on either broker, writing, reading, group offsets."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from assay.envelope import Message
from assay.topics import dead_letter_name
from assay_runtime.consumer import committed_offsets
from assay_runtime.finished import from_metadata
from assay_runtime.health import Health
from assay_runtime.pipeline import Pipeline, Runner
from assay_runtime.records import Delivery, raw_decoder
from assay_runtime.settings import KafkaSection
from assay_runtime.stage import Handler, Outcome
from assay_runtime.topic_admin import TopicSpec, ensure_topics

SERVICE = "rig"
PARTITIONS = 4
TIMEOUT_S = 30


@dataclass(frozen=True)
class Names:
    """Topics and pipeline of one test."""

    source: str = field(default_factory=lambda: f"rig.in.{uuid.uuid4().hex[:12]}")
    pipeline: str = field(default_factory=lambda: f"rig-{uuid.uuid4().hex[:12]}")

    @property
    def sink(self) -> str:
        return self.source.replace(".in.", ".out.")

    @property
    def dead(self) -> str:
        return dead_letter_name(self.source, SERVICE)

    @property
    def group(self) -> str:
        return f"assay.{self.pipeline}"

    @property
    def all(self) -> tuple[str, ...]:
        return (self.source, self.sink, self.dead)


def kafka_section(bootstrap: str, **changes: Any) -> KafkaSection:
    defaults = {"session_timeout_ms": 6_000, "drain_s": 1, "fetch_wait_ms": 20, "log": ""}
    return KafkaSection(bootstrap=bootstrap, **{**defaults, **changes})


async def create(bootstrap: str, names: Names) -> None:
    """On Apache Kafka; the embedded broker gets its topics at its start."""
    await ensure_topics(bootstrap, [TopicSpec(name, PARTITIONS, 1) for name in names.all])


Row = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]


def rows(count: int, keys: int, start: int = 0) -> list[Row]:
    """Numbered records; key = number modulo `keys`, so the order per key can be seen."""
    return [
        (b"key-%d" % (n % keys), b"%d" % n, [("ce_id", b"%d" % n)])
        for n in range(start, start + count)
    ]


async def write(bootstrap: str, topic: str, records: Iterable[Row], **options: Any) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=2, **options
    )
    await producer.start()
    try:
        futures = [
            await producer.send(topic, value=value, key=key, headers=list(headers))
            for key, value, headers in records
        ]
        await asyncio.gather(*futures)
    finally:
        await producer.stop()


async def read(bootstrap: str, topic: str) -> list[Any]:
    """Everything on the topic, in order per partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=20
    )
    await consumer.start()
    try:
        tps = [TopicPartition(topic, n) for n in range(PARTITIONS)]
        consumer.assign(tps)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(tps)
        found: list[Any] = []
        async with asyncio.timeout(TIMEOUT_S):
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for part in (await consumer.getmany(timeout_ms=100)).values():
                    found += part
        return found
    finally:
        await consumer.stop()


async def ends(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        tps = [TopicPartition(topic, n) for n in range(PARTITIONS)]
        return {tp.partition: end for tp, end in (await consumer.end_offsets(tps)).items()}
    finally:
        await consumer.stop()


async def committed(bootstrap: str, names: Names) -> dict[int, int]:
    """The group's offsets by partition, 0 where it has none."""
    return {n: at.offset for n, at in (await _group(bootstrap, names)).items()}


async def done(bootstrap: str, names: Names) -> int:
    """Records that the group's commits say are done, with those above the offsets."""
    count = 0
    for at in (await _group(bootstrap, names)).values():
        finished = from_metadata(at.metadata, at.offset, "")
        count += at.offset + (finished.count() if finished else 0)
    return count


async def _group(bootstrap: str, names: Names) -> dict[int, OffsetAndMetadata]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=names.group, enable_auto_commit=False
    )
    await consumer.start()
    try:
        tps = [TopicPartition(names.source, n) for n in range(PARTITIONS)]
        found = await committed_offsets(consumer, tps)
        return {tp.partition: found.get(tp, OffsetAndMetadata(0, "")) for tp in tps}
    finally:
        await consumer.stop()


async def delete_before(bootstrap: str, topic: str, offsets: dict[int, int]) -> None:
    """What retention does, at once (Apache Kafka only)."""
    from aiokafka.admin.records_to_delete import RecordsToDelete

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.delete_records(
            {TopicPartition(topic, p): RecordsToDelete(before_offset=o) for p, o in offsets.items()}
        )
    finally:
        await admin.close()


def forwarding(
    sink: str, before: Callable[[Sequence[Delivery[Any]]], Any] | None = None
) -> Handler:
    """Handler that passes records on as they are; `before` may wait or raise."""

    async def handle(deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        if before is not None:
            await before(deliveries)
        return [
            [Message(sink, d.record.key or b"", d.value, (("ce_id", d.id.encode()),))]
            for d in deliveries
        ]

    return handle


def pipeline(names: Names, engine: Any, handler: Handler, **changes: Any) -> Pipeline:
    return Pipeline(
        **{
            "name": names.pipeline,
            "topics": (names.source,),
            "decode": raw_decoder,
            "handler": handler,
            "engine": engine,
            **changes,
        }
    )


@dataclass
class Running:
    """A runner at work; `task` is its `run`."""

    runner: Runner
    health: Health
    task: asyncio.Task[None]


@asynccontextmanager
async def running(
    bootstrap: str, what: Pipeline, drain_s: float = 2.0, **kafka: Any
) -> AsyncIterator[Running]:
    health = Health()
    health.note("service", None)
    runner = Runner(SERVICE, what, kafka_section(bootstrap, **kafka), health)
    await runner.start()
    task = asyncio.create_task(runner.run())
    try:
        yield Running(runner, health, task)
    finally:
        await runner.stop(drain_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> None:
    """Ask again until it holds; the limit only keeps a failing test from hanging."""
    async with asyncio.timeout(timeout_s):
        while True:
            answer = condition()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return
            await asyncio.sleep(0.05)


def distinct(records: Iterable[Any]) -> set[bytes]:
    return {record.value for record in records}


def out_of_order(records: Iterable[Any]) -> list[tuple[bytes, int, int]]:
    """First occurrences per key that come after a higher number of the same key."""
    highest: dict[bytes, int] = defaultdict(lambda: -1)
    seen: set[bytes] = set()
    wrong = []
    for record in records:
        if record.value in seen:
            continue
        seen.add(record.value)
        number = int(record.value)
        if number < highest[record.key]:
            wrong.append((record.key, highest[record.key], number))
        highest[record.key] = max(highest[record.key], number)
    return wrong


def numbers() -> Callable[[], int]:
    return itertools.count().__next__
