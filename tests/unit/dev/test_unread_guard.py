"""The embedded broker drops nothing that its readers have not read (issue 6, item 4)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from deploy.dev.broker import EmbeddedBroker
from deploy.dev.plan import SERVICES
from deploy.dev.unread_guard import UnreadGuard, readers

FULL, FREE = TopicPartition("t", 0), TopicPartition("t", 1)
RECORD = 400_000
COUNT = 30


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker([("t", 2)]) as running:
        yield running


@asynccontextmanager
async def guarded(broker: EmbeddedBroker, said: list[str]) -> AsyncIterator[None]:
    groups = {"t": frozenset({"fast", "slow"})}
    watching = asyncio.create_task(UnreadGuard(broker, groups, 2, said.append).run())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@asynccontextmanager
async def producer(broker: EmbeddedBroker) -> AsyncIterator[AIOKafkaProducer]:
    made = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, enable_idempotence=True, max_request_size=2 * RECORD
    )
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def write(broker: EmbeddedBroker) -> None:
    """12 MB to one partition, without waiting for any reader."""
    async with producer(broker) as client:
        for _ in range(COUNT):
            await client.send_and_wait("t", os.urandom(RECORD), partition=FULL.partition)
            await asyncio.sleep(0.02)


async def read(broker: EmbeddedBroker, group: str, pause_s: float) -> list[int]:
    """All offsets of the partition as a group sees them that takes its time."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False,
        auto_offset_reset="earliest", fetch_max_wait_ms=10, max_partition_fetch_bytes=2 * RECORD,
    )  # fmt: skip
    await consumer.start()
    try:
        consumer.assign([FULL])
        seen: list[int] = []
        while not seen or seen[-1] < COUNT - 1:
            for records in (await consumer.getmany(timeout_ms=200, max_records=1)).values():
                seen += [record.offset for record in records]
                await asyncio.sleep(pause_s)
                await consumer.commit({FULL: seen[-1] + 1})
        return seen
    finally:
        await consumer.stop()


async def both(broker: EmbeddedBroker) -> list[list[int]]:
    async with asyncio.timeout(60):
        writing = asyncio.create_task(write(broker))
        seen = await asyncio.gather(read(broker, "fast", 0), read(broker, "slow", 0.1))
        await writing
    return list(seen)


async def test_writers_wait_for_the_slowest_reader(broker: EmbeddedBroker) -> None:
    said: list[str] = []
    async with guarded(broker, said):
        fast, slow = await both(broker)
    assert fast == slow == list(range(COUNT))
    assert said == ["t is full: writers wait for its readers"]


async def test_without_it_records_are_dropped(broker: EmbeddedBroker) -> None:
    """That is the broker's nature; should it change, the guard may go."""
    _, slow = await both(broker)
    assert len(slow) < COUNT


async def test_other_partitions_are_written_meanwhile_and_refusals_do_not_pile_up(
    broker: EmbeddedBroker,
) -> None:
    """A partition nobody reads is refused for as long as it lasts, another is not; once it is
    read, a write goes through after no more attempts than were in store."""
    async with guarded(broker, []), producer(broker) as client:
        for _ in range(8):
            await client.send_and_wait("t", os.urandom(RECORD), partition=FULL.partition)
        await asyncio.sleep(1)
        waiting = asyncio.create_task(client.send_and_wait("t", b"x", partition=FULL.partition))
        await client.send_and_wait("t", b"x", partition=FREE.partition)
        await asyncio.sleep(0.5)
        assert not waiting.done()
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="fast",
                                    enable_auto_commit=False)  # fmt: skip
        other = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="slow",
                                 enable_auto_commit=False)  # fmt: skip
        for member in (consumer, other):
            await member.start()
            member.assign([FULL])
            await member.commit({FULL: 8})
            await member.stop()
        async with asyncio.timeout(30):
            await waiting


def test_who_must_have_read_a_topic() -> None:
    found = readers(SERVICES)
    assert found["wallet.event.submitted.v1"] == {"assay.ingest", "assay.evidence"}
    assert found["wallet.score.signed.v1"] == {"assay.ingest.results", "assay.evidence"}
    assert found["llm.generation.requested.v1"] == {"assay.scorer", "assay.evidence"}
    assert not any("advisor" in group for groups in found.values() for group in groups)
