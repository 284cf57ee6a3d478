"""The broker as a batch sees it: requests out, what became of them in, without a group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from assay.batch.requests import REQUESTED
from assay.batch.step_outcomes import OUTCOME_TOPICS, named_request
from assay.connection import connected, idempotent_producer, stopped
from assay.envelope import Headers, Message
from assay.errors import BrokerError

Positions: TypeAlias = dict[str, dict[str, int]]
"""The next offset to read, by topic and partition."""

_FETCH_WAIT_MS = 100
_FETCH_RECORDS = 1_000


@dataclass(frozen=True, slots=True)
class Fetched:
    """A record that has been read."""

    topic: str
    partition: int
    offset: int
    value: bytes
    headers: Headers


class BatchBus:
    """An async context manager; BrokerError where Kafka or its topics are not there.

    `positions` is where to go on with outcomes, and where this batch's requests begin. Saved on
    another cluster it means nothing, and everything kept is read.
    """

    def __init__(self, bootstrap: str, saved: dict[str, Any] | None, deadline_s: float) -> None:
        self._bootstrap = bootstrap
        self._saved = saved
        self._deadline_s = deadline_s
        self.cluster = ""
        self.positions: Positions = {}
        self._held: Positions = {}
        self._outcomes: list[TopicPartition] = []
        self._requests: list[TopicPartition] = []
        self._producer = idempotent_producer(bootstrap, max_request_size=2_097_152)
        self._consumer = self._new_consumer()

    async def __aenter__(self) -> Self:
        try:
            await connected(self._start_reading, self._consumer.stop, self._bootstrap)
        except BaseException:
            await stopped(self._producer)  # one that was never started complains at exit as well
            raise
        try:
            await connected(self._producer.start, self._producer.stop, self._bootstrap)
        except BaseException:
            await self._consumer.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await stopped(self._producer)
        await self._consumer.stop()

    async def send(self, message: Message) -> None:
        """BrokerError where Kafka does not confirm it in time."""
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._producer.send_and_wait(
                    message.topic, message.value, key=message.key, headers=list(message.headers)
                )
        except TimeoutError:
            reason = f"confirmed nothing for {self._deadline_s:g} s"
            raise BrokerError(f"Kafka at {self._bootstrap} {reason}") from None
        except KafkaError as error:
            raise BrokerError(f"Kafka at {self._bootstrap} refused a record: {error}") from error

    async def fetch(self) -> list[Fetched]:
        """Outcome records as they come; none after a moment without any."""
        fetched = await self._consumer.getmany(
            timeout_ms=_FETCH_WAIT_MS, max_records=_FETCH_RECORDS
        )
        for tp, records in fetched.items():
            self.positions[tp.topic][str(tp.partition)] = records[-1].offset + 1
        return [
            Fetched(tp.topic, tp.partition, r.offset, r.value or b"", tuple(r.headers))
            for tp, records in fetched.items()
            for r in records
        ]

    async def backlog(self) -> Callable[[], Awaitable[bool]]:
        """Tells whether something that the broker has now is still to be read."""
        ends = await self._consumer.end_offsets(self._consumer.assignment())
        return lambda: _is_before(self._consumer, ends)

    def hold(self, record: Fetched) -> None:
        """Read this record again after a restart, whatever is read meanwhile."""
        held = self._held.setdefault(record.topic, {})
        name = str(record.partition)
        held[name] = min(held.get(name, record.offset), record.offset)

    def release(self) -> None:
        self._held.clear()

    def to_save(self) -> dict[str, Any]:
        positions = {
            topic: {**of_topic, **self._held.get(topic, {})}
            for topic, of_topic in self.positions.items()
        }
        return {"cluster": self.cluster, "positions": positions}

    async def asked(self, wanted: Collection[str]) -> set[str]:
        """Which of these requests stand on the topic of requests."""
        found: set[str] = set()
        reader = self._new_consumer()
        try:
            await connected(reader.start, reader.stop, self._bootstrap)
            reader.assign(self._requests)
            ends = await reader.end_offsets(self._requests)
            for tp in self._requests:
                reader.seek(tp, self.positions[REQUESTED][str(tp.partition)])
            while await _is_before(reader, ends):
                for records in (await reader.getmany(timeout_ms=_FETCH_WAIT_MS)).values():
                    found.update(filter(None, (named_request(r.headers) for r in records)))
        finally:
            await reader.stop()
        return found.intersection(wanted)

    async def forget_asked(self) -> None:
        """What has been asked so far is asked again by the next run."""
        for tp, end in (await self._consumer.end_offsets(self._requests)).items():
            self.positions[REQUESTED][str(tp.partition)] = end

    def _new_consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            max_partition_fetch_bytes=4_194_304,
        )

    async def _start_reading(self) -> None:
        await self._look_around()
        await self._consumer.start()
        lows = await self._consumer.beginning_offsets(self._outcomes + self._requests)
        ends = await self._consumer.end_offsets(self._outcomes + self._requests)
        for tp, end in ends.items():
            position = self._start(tp, lows[tp], end)
            self.positions.setdefault(tp.topic, {})[str(tp.partition)] = position
        self._consumer.assign(self._outcomes)
        for tp in self._outcomes:
            self._consumer.seek(tp, self.positions[tp.topic][str(tp.partition)])

    async def _look_around(self) -> None:
        """Which cluster it is, and the partitions of our topics."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            await admin.start()
            self.cluster = str((await admin.describe_cluster())["cluster_id"])
            present = {*OUTCOME_TOPICS, REQUESTED}.intersection(await admin.list_topics())
            if REQUESTED not in present:
                raise BrokerError(f"Kafka at {self._bootstrap} has no topic {REQUESTED}")
            for described in await admin.describe_topics(sorted(present)):
                topic = described["topic"]
                found = self._requests if topic == REQUESTED else self._outcomes
                found += [TopicPartition(topic, p["partition"]) for p in described["partitions"]]
        finally:
            await admin.close()

    def _start(self, tp: TopicPartition, low: int, end: int) -> int:
        if self._saved is None:
            return end  # a new batch: nothing of its own lies there yet
        if self._saved["cluster"] != self.cluster:
            return low
        saved = self._saved["positions"].get(tp.topic, {}).get(str(tp.partition), low)
        return int(saved) if low <= saved <= end else low


async def _is_before(consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]) -> bool:
    for tp, end in ends.items():
        if await consumer.position(tp) < end:
            return True
    return False
