"""Where reading starts, and what to do when retention was faster (DESIGN §3, research §6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import structlog
from aiokafka import TopicPartition

from assay_runtime import metrics
from assay_runtime.consumer import committed_offsets
from assay_runtime.failures import Pause, Stop
from assay_runtime.finished import Finished, from_metadata
from assay_runtime.records import Position
from assay_runtime.settings import KafkaSection

log = structlog.get_logger()


# A stored position: read from the first record there is; those that are gone are not missed.
FROM_FIRST = -1


class StoredPositions(Protocol):
    """Where a sink keeps the offsets to read next, beside its rows; Pause while that is away."""

    async def positions(self, wanted: Collection[Position]) -> Mapping[Position, int]:
        """Those that it has, or FROM_FIRST."""
        ...

    async def pass_over(self, positions: Mapping[Position, int]) -> None:
        """Keep where reading goes on behind a gap; where it stands further on already, nothing."""
        ...


# A broker that has just come back may know less of its log than was committed; ask again.
_BEYOND_TRIES = 3


class Lost(NamedTuple):
    """Records of a partition that nobody will read: `count` of those from `start` to `low`."""

    position: Position
    start: int
    low: int
    finished: Finished | None

    def count(self, known: int) -> int:
        """Those that lie at `known` or above and were not finished earlier."""
        start = max(self.start, known)
        done = self.finished
        finished = done.count(below=self.low) - done.count(below=start) if done else 0
        return max(0, self.low - start - finished)


@dataclass(slots=True)
class Found:
    """Offsets to start from, the group's own where there are any, what is finished above those
    already, and what retention removed below them (`Lost`)."""

    start: dict[Position, int] = field(default_factory=dict)
    committed: dict[Position, int | None] = field(default_factory=dict)
    finished: dict[Position, Finished] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)


class StartingPositions:
    """Finds offsets to read from: those committed, or for a sink those stored beside its rows
    where they are behind; else the first.

    aiokafka would reset a position that retention has overtaken to the earliest record in
    silence; here the loss is counted and said, and ends the process if so configured. So is what
    was removed from a partition that the group knows no offset of.
    """

    def __init__(
        self, kafka: KafkaSection, pipeline: str, stored_positions: StoredPositions | None
    ) -> None:
        self._kafka = kafka
        self._pipeline = pipeline
        self._stored_positions = stored_positions
        self._beyond: Counter[Position] = Counter()
        self._finished: dict[Position, Finished] = {}
        self._told: dict[Position, int] = {}

    async def find(self, consumer: Any, wanted: Collection[Position]) -> Found:
        """Starts of newly assigned partitions; those that must be asked again are left out.

        Raises KafkaError, Pause while the store of positions is away.
        """
        tps = [TopicPartition(*position) for position in wanted]
        stored = await self._stored_positions.positions(wanted) if self._stored_positions else {}
        lows, ends, group = await asyncio.gather(
            consumer.beginning_offsets(tps),
            consumer.end_offsets(tps),
            committed_offsets(consumer, tps),
        )
        found = Found()
        for position, tp in zip(wanted, tps, strict=True):
            at_group = group[tp].offset if tp in group else None
            at = at_group
            if self._stored_positions:
                at = _behind(stored.get(position), at_group)
            low, end = lows[tp], ends[tp]
            finished = None
            if at is None:
                found.start[position] = low
                unread = stored.get(position, 0)
                if unread != FROM_FIRST and unread < low:
                    # A group that was away for as long as its topics keep records may have been
                    # forgotten by then too, and cannot be told from a new one.
                    log.warning("start_after_retention", topic=tp.topic, low_watermark=low)
                    found.lost.append(Lost(position, unread, low, None))
            else:
                if not self._stored_positions:
                    finished = from_metadata(group[tp].metadata or "", at, self._kafka.log)
                received = finished.end if finished else at
                self._place(found, Lost(position, at, low, finished), received, end)
            if position not in found.start:
                continue
            found.committed[position] = at_group
            self._finished.pop(position, None)
            # A log that is shorter than what was finished holds other records by now.
            if finished is not None and finished.end <= end:
                found.finished[position] = self._finished[position] = finished
        return found

    async def after_gaps(self, consumer: Any, at: Mapping[Position, int]) -> Found:
        """Where to go on when the broker says that these offsets are out of range."""
        tps = [TopicPartition(*position) for position in at]
        lows, ends = await asyncio.gather(
            consumer.beginning_offsets(tps), consumer.end_offsets(tps)
        )
        found = Found()
        for (position, offset), tp in zip(at.items(), tps, strict=True):
            gap = Lost(position, offset, lows[tp], self._finished.get(position))
            self._place(found, gap, offset, ends[tp])
        return found

    def _place(self, found: Found, gap: Lost, received: int, end: int) -> None:
        """Put the start into `found`, and the gap if there is one; nothing if it must be asked
        again."""
        position, at = gap.position, gap.start
        if at < gap.low:
            found.start[position] = gap.low
            found.lost.append(gap)
            return
        if received > end:
            self._beyond[position] += 1
            if self._beyond[position] < _BEYOND_TRIES:
                return
            # The log was cut or the topic made anew: what it holds now has not been read.
            log.error("position_beyond_log", topic=position.topic, position=received, end=end)
            if at > end:
                at = gap.low
        self._beyond.pop(position, None)
        found.start[position] = at

    def tell(self, found: Found) -> None:
        """Log what was found and count what is lost, each record once: not again where a commit
        that passed it was refused. To be called once the partitions are known to be ours still.

        Raises Stop, which names every loss, if that is to end the process.
        """
        if found.finished:
            count = sum(finished.count() for finished in found.finished.values())
            log.info("finished_earlier", pipeline=self._pipeline, records=count)
        lost: dict[str, int] = {}
        for gap in sorted(found.lost, key=lambda gap: gap.position):
            known = self._told.get(gap.position, 0)
            # Where the log begins lower than before, it is another one.
            count = gap.count(known if known <= gap.low else 0)
            self._told[gap.position] = gap.low
            if count:
                lost[f"{gap.position.topic}/{gap.position.partition}"] = count
                self._tell_lost(gap.position, count)
        if lost and self._kafka.overrun == "stop":
            places = ", ".join(f"{place}: {count}" for place, count in sorted(lost.items()))
            raise Stop(
                f"{sum(lost.values())} records were removed by retention before they were read; "
                f"set ASSAY_KAFKA__OVERRUN=continue to go on without them ({places})"
            )

    async def told(self, found: Found) -> None:
        """What was lost is known by now: a sink's store passes it, or the next start would find
        it again where no record has come since."""
        if found.lost:
            await self.pass_over({gap.position: gap.low for gap in found.lost})

    async def pass_over(self, positions: Mapping[Position, int]) -> bool:
        """Whether a sink's store knows that reading goes on there; where there is none, nobody
        need know."""
        try:
            if self._stored_positions:
                await self._stored_positions.pass_over(positions)
        except Pause as outage:
            log.warning("gaps_not_stored", pipeline=self._pipeline, error=str(outage))
            return False
        return True

    def _tell_lost(self, position: Position, count: int) -> None:
        metrics.OVERRUN.labels(self._pipeline).inc(count)
        log.error(
            "retention_overrun",
            pipeline=self._pipeline,
            topic=position.topic,
            partition=position.partition,
            lost_records=count,
        )


def _behind(stored: int | None, committed: int | None) -> int | None:
    """Where a sink goes on, to which repeats are harmless: None, the first record, where either
    says nothing. A store without a position is new, or a backup from before the partition's first
    record; Kafka forgets what a group committed when the topic is deleted and made anew."""
    if stored is None or stored == FROM_FIRST or committed is None:
        return None
    return min(stored, committed)
