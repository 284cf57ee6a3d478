"""The consuming side: explicit positions, explicit commits, nothing skipped in silence.

Every assigned partition is positioned by us before a record of it is admitted, so records that
arrive early (aiokafka hands out an assignment before its callback has run, research point 13)
are dropped safely and fetched again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import structlog
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    KafkaError,
    LeaderNotAvailableError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from assay_runtime import metrics
from assay_runtime.committer import Committer
from assay_runtime.consumer import group_consumer, stop
from assay_runtime.lag import Lag
from assay_runtime.leaders import leaderless, shown
from assay_runtime.positions import OnPause, Positions
from assay_runtime.records import Position, Record
from assay_runtime.settings import KafkaSection
from assay_runtime.starting import StartingPositions, StoredPositions
from assay_runtime.window import Ticket, Window

log = structlog.get_logger()

Drain = Callable[[float], Awaitable[None]]

_RETRY_S, _LEAVE_S, _PROBE_S = 0.5, 5.0, 5.0


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
        on_pause: OnPause = lambda reason: None,
    ) -> None:
        self.window = Window()
        self.assigned = False
        self.revoking = False
        self.completed = 0
        self._kafka = kafka
        self._pipeline = pipeline
        self._group = group
        self._topics = list(topics)
        self._client_id = client_id
        self._drain = drain
        starting = StartingPositions(kafka, pipeline, stored_positions)
        self._positions = Positions(pipeline, self.window, starting, on_pause)
        self._committer = Committer(pipeline, self.window, kafka.log)
        self._lag = Lag(pipeline, self.window)
        self._consumed = {t: metrics.CONSUMED.labels(pipeline, t) for t in topics}
        self._closed = False
        self._consumer: Any = None

    async def start(self) -> None:
        """Join the group; after a failure it may be called again."""
        consumer = group_consumer(self._kafka, self._group, self._client_id)
        consumer.subscribe(self._topics, listener=self)
        try:
            await consumer.start()
        except BaseException:
            await stop(consumer)
            raise
        self._consumer = consumer

    async def commit_regularly(self) -> None:
        """Runs beside the engine."""
        await self._committer.run(self._consumer)

    def commit_promptly(self, interval_s: float, on_commit: Callable[[], None]) -> None:
        """For records that are dear to repeat: commit again `interval_s` after a commit, and
        say when one succeeded."""
        self._committer.interval_s = interval_s
        self._committer.on_commit = on_commit

    def close(self) -> None:
        """Admit nothing more; what is admitted may still be completed."""
        self._closed = True

    async def stop(self) -> None:
        """Final commit, then leave the group; aiokafka calls no revocation here (point 12)."""
        self._closed = True
        if self._consumer is None:
            return
        await self._committer.commit_last(self._consumer)
        self.window.revoke(self.window.positions())
        try:
            async with asyncio.timeout(_LEAVE_S):
                await stop(self._consumer)
        except (KafkaError, TimeoutError) as error:
            log.warning("group_not_left", pipeline=self._pipeline, error=repr(error))

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Drain, commit, let go; aiokafka swallows what is raised here, so the letting go is
        done whatever happens. It revokes everything, never a part (point 11)."""
        self.assigned = False
        self.revoking = True
        try:
            await self._drain(self._kafka.drain_s)
            if revoked:
                await self._committer.commit_last(self._consumer)
        finally:
            self._positions.revoked()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._positions.assigned(Position(tp.topic, tp.partition) for tp in assigned)
        self.revoking = False
        self.assigned = True
        log.info("partitions_assigned", pipeline=self._pipeline, count=len(assigned))

    async def poll(
        self, max_records: int, wait_ms: int, only: Sequence[Position] = ()
    ) -> list[tuple[Ticket, Record]]:
        """Admitted records, in the order of their partitions.

        `only` restricts the poll to some partitions without losing what is prefetched of others.
        Admission follows the fetch with no await between (point 14), so a poll that is cancelled
        has taken nothing. An error of one partition may come after records of another were
        handed out, so after any error every partition goes back to what was admitted.
        """
        if not self._positions.settled:
            await self._positions.settle(self._consumer)
        try:
            fetched = await self._consumer.getmany(
                *(TopicPartition(*position) for position in only),
                timeout_ms=wait_ms,
                max_records=max_records,
            )
        except ConsumerStoppedError:
            self._closed = True
            return []
        except NoOffsetForPartitionError:
            await asyncio.sleep(0.02)  # fetched before we positioned it; the next poll does
            return []
        except OffsetOutOfRangeError as error:
            self._positions.overtaken(Position(tp.topic, tp.partition) for tp in error.args[0])
            return []
        except KafkaError as error:
            log.warning("poll_failed", pipeline=self._pipeline, error=repr(error))
            self._positions.rewind(self._consumer)
            await asyncio.sleep(_RETRY_S)
            return []
        except Exception:
            self._positions.rewind(self._consumer)  # nothing handed out may seem to be read
            raise
        if self.revoking or self._closed:
            return []  # dropped; whoever is assigned next positions the partition anew
        admitted: list[tuple[Ticket, Record]] = []
        for tp, raw_records in fetched.items():
            position = Position(tp.topic, tp.partition)
            before = len(admitted)
            for raw in raw_records:
                ticket = self.window.admit(position, raw.offset)
                if ticket is not None:
                    admitted.append((ticket, Record.of(raw)))
            self._consumed[tp.topic].inc(len(admitted) - before)
        return admitted

    def complete(self, ticket: Ticket) -> None:
        """All outputs of the record are confirmed."""
        self.window.complete(ticket)
        self.completed += 1
        self._committer.wake()

    async def measure_lag(self) -> None:
        """Runs beside the engine."""
        await self._lag.run(self._consumer)

    async def check_assigned(self) -> str | None:
        """For readiness."""
        return None if self.assigned else "no partitions assigned yet"

    async def check_led(self) -> str | None:
        """For readiness: names the partitions read from whose leader is away."""
        away = leaderless(self._consumer, self.window.positions())
        return shown(away) if away else None

    async def waiting(self) -> str | None:
        """What there is to read where there is a leader, in words, as the broker says, or None."""
        async with asyncio.timeout(_PROBE_S):
            positions = self.window.positions()
            if not positions:
                missing = set(self._topics) - await self._consumer.topics()
                if missing:
                    log.warning("topics_missing", pipeline=self._pipeline, topics=sorted(missing))
                return None if self.assigned else "no partitions assigned"
            led = set(positions).difference(leaderless(self._consumer, positions))
            if not led:
                raise LeaderNotAvailableError(shown(positions))
            ends = await self._consumer.end_offsets([TopicPartition(*p) for p in led])
            quiet = not self.revoking and not self._closed
            # While partitions go, records are handed out that nobody admits.
            recordless = await self._positions.recordless(self._consumer, led) if quiet else {}
        if recordless:
            await self._positions.pass_recordless(recordless)
        read = {p: recordless.get(p) or self.window.watermark(p) or 0 for p in led}
        lag = sum(max(0, ends[TopicPartition(*p)] - at) for p, at in read.items())
        return f"lag {lag}" if lag else None
