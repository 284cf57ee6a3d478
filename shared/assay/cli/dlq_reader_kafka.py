"""Reading dead-letter topics from beginning to end, one record at a time, in no group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from assay.connection import connected
from assay.dead_letters import DeadLetterView, LetterRecord, Place, read_dead_letter
from assay.errors import BrokerError

_PATIENCE_S = 30
_POLL_MS = 200

Progress = Callable[[int, int], None]


class DeadLetterReader:
    """An async context manager; BrokerError where Kafka or a record that must be there is not."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
            max_partition_fetch_bytes=8_388_608,
        )

    async def __aenter__(self) -> Self:
        await connected(self._consumer.start, self._consumer.stop, self._bootstrap)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def present(self, topics: Sequence[str]) -> list[str]:
        """Those of the topics that the broker has; BrokerError where it has none of them, for
        then it is another broker than the one that was meant."""
        found = sorted({tp.topic for tp in await self._partitions(topics)})
        if not found:
            lacks = f"no topic {topics[0]}" if len(topics) == 1 else "no dead-letter topic"
            raise BrokerError(f"Kafka at {self._bootstrap} has {lacks}")
        return found

    async def letters(
        self, topics: Collection[str], *, since_ms: int = 0, progress: Progress | None = None
    ) -> AsyncIterator[DeadLetterView]:
        """What lies there now, each partition in its order; `since_ms` leaves out what is older.

        `progress` is told records passed and records in all.
        """
        async for raw in self._records(await self._partitions(topics), since_ms, progress):
            yield _letter(raw)

    async def at(self, place: Place) -> LetterRecord | None:
        """The record at one place of any topic; None where it is no longer, or not yet, there."""
        tp = TopicPartition(place.topic, place.partition)
        if tp not in await self._partitions([place.topic]):
            return None
        async for raw in self._records([tp], 0, None, first=place.offset, count=1):
            if raw.offset == place.offset:
                return _record(raw)
        return None

    async def _partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await connected(admin.start, admin.close, self._bootstrap)
        try:
            # All are listed: asking for one by name may make it where a broker allows that.
            described = await admin.describe_topics()
        except KafkaError as error:
            raise BrokerError(f"Kafka at {self._bootstrap}: {error!r}") from error
        finally:
            await admin.close()
        return [
            TopicPartition(topic["topic"], number)
            for topic in described
            if topic["topic"] in topics
            for number in sorted(partition["partition"] for partition in topic["partitions"])
        ]

    async def _records(
        self,
        tps: list[TopicPartition],
        since_ms: int,
        progress: Progress | None,
        first: int | None = None,
        count: int | None = None,
    ) -> AsyncIterator[Any]:
        if not tps:
            return
        try:
            starts, ends = await self._bounds(tps, since_ms, first, count)
            left = {tp for tp in tps if starts[tp] < ends[tp]}
            total = sum(ends[tp] - starts[tp] for tp in left)
            while left:
                async with asyncio.timeout(_PATIENCE_S):
                    while not (fetched := await self._consumer.getmany(timeout_ms=_POLL_MS)):
                        pass
                for tp, records in fetched.items():
                    for raw in records:
                        if raw.offset < ends[tp]:
                            yield raw
                for tp in tuple(left):
                    starts[tp] = min(ends[tp], await self._consumer.position(tp))
                    if starts[tp] == ends[tp]:
                        left.discard(tp)
                        self._consumer.pause(tp)
                if progress is not None:
                    progress(total - sum(ends[tp] - starts[tp] for tp in left), total)
        except TimeoutError:
            raise BrokerError(f"Kafka at {self._bootstrap} sends no more records") from None
        except KafkaError as error:
            raise BrokerError(f"Kafka at {self._bootstrap}: {error!r}") from error

    async def _bounds(
        self, tps: list[TopicPartition], since_ms: int, first: int | None, count: int | None
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where to begin and to end, by partition; the consumer stands at the beginning."""
        self._consumer.assign(tps)
        starts = dict(await self._consumer.beginning_offsets(tps))
        ends = dict(await self._consumer.end_offsets(tps))
        if since_ms:
            times = await self._consumer.offsets_for_times(dict.fromkeys(tps, since_ms))
            for tp, found in times.items():
                starts[tp] = max(starts[tp], ends[tp] if found is None else found.offset)
        for tp in tps:
            if first is not None:
                starts[tp] = max(starts[tp], first)
            if count is not None:
                ends[tp] = min(ends[tp], starts[tp] + count)
            self._consumer.seek(tp, starts[tp])
            if starts[tp] >= ends[tp]:
                self._consumer.pause(tp)
        return starts, ends


def _record(raw: Any) -> LetterRecord:
    place = Place(raw.topic, raw.partition, raw.offset)
    return LetterRecord(place, raw.timestamp, raw.key, raw.value, tuple(raw.headers))


def _letter(raw: Any) -> DeadLetterView:
    return read_dead_letter(_record(raw))
