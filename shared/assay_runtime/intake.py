"""The consuming side: explicit positions, explicit commits, nothing skipped in silence.

Every assigned partition is positioned by us before a record of it is admitted, so records that
arrive early (aiokafka hands out an assignment before its callback has run, research point 13)
are dropped safely and fetched again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from assay_runtime import metrics
from assay_runtime.failures import Stop
from assay_runtime.records import Position, Record
from assay_runtime.settings import KafkaSection
from assay_runtime.window import Ticket, Window

log = structlog.get_logger()

StoredPositions = Callable[[Collection[Position]], Awaitable[Mapping[Position, int]]]
Drain = Callable[[float], Awaitable[None]]

_COMMIT_INTERVAL_S = 0.1
# The watchdog of `stall_s` replaces aiokafka's poll interval, which would throw a waiting
# window out of its group (research point 16).
_POLL_INTERVAL_MS = 86_400_000


class Intake(ConsumerRebalanceListener):  # type: ignore[misc]
    """One consumer of one group with its window and committer.

    `stored_positions` lets a sink that keeps offsets beside its rows start from those, which
    after a restore lie behind the group's. `drain` is asked to finish running work within the
    given seconds before partitions go.
    """

    def __init__(
        self,
        kafka: KafkaSection,
        *,
        pipeline: str,
        group: str,
        topics: Sequence[str],
        client_id: str,
        drain: Drain,
        stored_positions: StoredPositions | None = None,
    ) -> None:
        self.window = Window()
        self._kafka = kafka
        self._pipeline = pipeline
        self._topics = list(topics)
        self._drain = drain
        self._stored_positions = stored_positions
        self._unpositioned: set[Position] = set()
        self._commit_lock = asyncio.Lock()
        self._committer: asyncio.Task[None] | None = None
        self._progress_at = time.monotonic()
        self._revoking = False
        self.assigned = False
        self._group = group
        self._client_id = client_id
        self._consumer: Any = None

    async def start(self) -> None:
        """Join the group; after a failure it may be called again."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._kafka.bootstrap,
            client_id=self._client_id,
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            session_timeout_ms=self._kafka.session_timeout_ms,
            heartbeat_interval_ms=max(300, self._kafka.session_timeout_ms // 5),
            rebalance_timeout_ms=int((self._kafka.drain_s + 10) * 1000),
            max_poll_interval_ms=_POLL_INTERVAL_MS,
            fetch_max_wait_ms=self._kafka.fetch_wait_ms,
            max_partition_fetch_bytes=max(1_048_576, self._kafka.max_request_bytes),
            metadata_max_age_ms=60_000,
        )
        consumer.subscribe(self._topics, listener=self)
        try:
            await consumer.start()
        except BaseException:
            await consumer.stop()
            raise
        self._consumer = consumer
        self._committer = asyncio.create_task(self._commit_loop())

    async def stop(self) -> None:
        """Final commit, then leave the group; aiokafka calls no revocation here (point 12)."""
        if self._committer:
            self._committer.cancel()
        if self._consumer is not None:
            await self.commit()
            self.window.revoke(self.window.positions())
            await self._consumer.stop()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        positions = [Position(tp.topic, tp.partition) for tp in revoked]
        self.assigned = False
        self._revoking = True
        await self._drain(self._kafka.drain_s)
        await self.commit()
        self.window.revoke(positions)
        self._unpositioned.difference_update(positions)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._unpositioned = {Position(tp.topic, tp.partition) for tp in assigned}
        self._revoking = False
        self._progress_at = time.monotonic()
        self.assigned = True
        log.info("partitions_assigned", pipeline=self._pipeline, count=len(assigned))

    async def poll(
        self, max_records: int, wait_ms: int, only: Sequence[Position] = ()
    ) -> list[tuple[Ticket, Record]]:
        """Admitted records, in the order of their partitions.

        `only` restricts the poll to some partitions without losing what is prefetched of others.
        Admission follows the fetch with no await between (point 14).
        """
        if self._unpositioned:
            await self._take_positions()
        try:
            fetched = await self._consumer.getmany(
                *(TopicPartition(*position) for position in only),
                timeout_ms=wait_ms,
                max_records=max_records,
            )
        except NoOffsetForPartitionError:
            await asyncio.sleep(0.02)  # fetched before we positioned it; the next poll does
            return []
        except OffsetOutOfRangeError as error:
            self._unpositioned.update(Position(tp.topic, tp.partition) for tp in error.args[0])
            return []
        except KafkaError as error:
            log.warning("poll_failed", pipeline=self._pipeline, error=repr(error))
            await asyncio.sleep(0.5)
            return []
        admitted: list[tuple[Ticket, Record]] = []
        if self._revoking:
            return admitted  # dropped; whoever is assigned next positions the partition anew
        for tp, raw_records in fetched.items():
            position = Position(tp.topic, tp.partition)
            for raw in raw_records:
                ticket = self.window.admit(position, raw.offset)
                if ticket is not None:
                    admitted.append((ticket, Record.of(raw)))
            metrics.CONSUMED.labels(self._pipeline, tp.topic).inc(len(raw_records))
        if admitted:
            metrics.IN_FLIGHT.labels(self._pipeline).set(self.window.in_flight)
        return admitted

    def complete(self, ticket: Ticket) -> None:
        """All outputs of the record are confirmed."""
        self.window.complete(ticket)
        self._progress_at = time.monotonic()

    def note_progress(self) -> None:
        """Waiting in place on purpose is not a stall."""
        self._progress_at = time.monotonic()

    async def _take_positions(self) -> None:
        """Start each new partition at its stored, else its committed offset, else at the start."""
        wanted = set(self._unpositioned)
        tps = [TopicPartition(*position) for position in wanted]
        try:
            stored = await self._stored_positions(wanted) if self._stored_positions else {}
            lows = await self._consumer.beginning_offsets(tps)
            ends = await self._consumer.end_offsets(tps)
            start: dict[Position, int] = {}
            for tp in tps:
                position = Position(tp.topic, tp.partition)
                at = stored.get(position)
                if at is None:
                    at = await self._consumer.committed(tp)
                start[position] = self._checked(position, at, lows[tp], ends[tp])
            if not wanted <= self._unpositioned:
                return  # a rebalance came between; the next poll starts over
            self.window.assign(start)
            for position, offset in start.items():
                self._consumer.seek(TopicPartition(*position), offset)
            self._unpositioned -= wanted
        except IllegalStateError:
            self._unpositioned -= wanted  # revoked while we asked
        except KafkaError as error:
            log.warning("positions_unknown", pipeline=self._pipeline, error=repr(error))
            await asyncio.sleep(0.5)

    def _checked(self, position: Position, at: int | None, low: int, end: int) -> int:
        """The offset to start from; loud when retention has outrun us (research §6)."""
        if at is None:
            if low > 0:
                log.warning("start_after_retention", topic=position.topic, low_watermark=low)
            return low
        if at < low:
            metrics.OVERRUN.labels(self._pipeline).inc(low - at)
            log.error(
                "retention_overrun",
                pipeline=self._pipeline,
                topic=position.topic,
                partition=position.partition,
                lost_records=low - at,
            )
            if self._kafka.overrun == "stop":
                raise Stop(
                    f"{low - at} records of {position.topic}/{position.partition} were removed "
                    "by retention before they were read; set ASSAY_KAFKA__OVERRUN=continue to go "
                    "on without them"
                )
            return low
        if at > end:
            # The log was cut or the topic made anew: what it holds now has not been read.
            log.error("position_beyond_log", topic=position.topic, position=at, end=end)
            return low
        return at

    async def commit(self) -> None:
        """Commit every watermark that moved; a failed commit costs repeats, never records."""
        async with self._commit_lock:
            moved = self.window.committable()
            if not moved:
                return
            try:
                await self._consumer.commit(
                    {TopicPartition(*position): offset for position, offset in moved.items()}
                )
            except (CommitFailedError, IllegalStateError, KafkaError) as error:
                metrics.COMMITS.labels(self._pipeline, "failed").inc()
                log.info("commit_refused", pipeline=self._pipeline, error=repr(error))
            else:
                metrics.COMMITS.labels(self._pipeline, "ok").inc()
                self.window.committed(moved)

    async def _commit_loop(self) -> None:
        while True:
            await asyncio.sleep(_COMMIT_INTERVAL_S)
            await self.commit()

    def lag(self) -> int:
        """Records between the window's watermarks and the ends of the logs, as last fetched."""
        total = 0
        for position in self.window.positions():
            high = self._consumer.highwater(TopicPartition(*position))
            mark = self.window.watermark(position)
            if high is not None and mark is not None:
                total += max(0, high - mark)
        metrics.LAG.labels(self._pipeline).set(total)
        return total

    def check_progress(self) -> None:
        """Stop when there is lag and nothing has been done for `stall_s` (research point 17)."""
        idle = time.monotonic() - self._progress_at
        if self.lag() == 0:
            self._progress_at = time.monotonic()
        elif idle > self._kafka.stall_s:
            raise Stop(f"{self._pipeline}: lag {self.lag()} and no progress for {idle:.0f} s")
