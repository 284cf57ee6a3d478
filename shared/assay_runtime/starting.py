"""Where reading starts, and what to do when retention was faster (DESIGN §3, research §6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from aiokafka import TopicPartition

from assay_runtime import metrics
from assay_runtime.consumer import committed_offsets
from assay_runtime.failures import Stop
from assay_runtime.finished import Finished, from_metadata
from assay_runtime.records import Position
from assay_runtime.settings import KafkaSection

log = structlog.get_logger()

StoredPositions = Callable[[Collection[Position]], Awaitable[Mapping[Position, int]]]

# A broker that has just come back may know less of its log than was committed; ask again.
_BEYOND_TRIES = 3


@dataclass(slots=True)
class Found:
    """Offsets to start from, the group's own where there are any, and what is finished above
    those already."""

    start: dict[Position, int] = field(default_factory=dict)
    committed: dict[Position, int | None] = field(default_factory=dict)
    finished: dict[Position, Finished] = field(default_factory=dict)


class StartingPositions:
    """Finds offsets to read from: those committed, or for a sink those stored beside its rows
    where they are behind; else the first.

    aiokafka would reset a position that retention has overtaken to the earliest record in
    silence; here the loss is counted and said, and ends the process if so configured.
    """

    def __init__(
        self, kafka: KafkaSection, pipeline: str, stored_positions: StoredPositions | None
    ) -> None:
        self._kafka = kafka
        self._pipeline = pipeline
        self._stored_positions = stored_positions
        self._beyond: Counter[Position] = Counter()

    async def find(self, consumer: Any, wanted: Collection[Position]) -> Found:
        """Starts of newly assigned partitions; those that must be asked again are left out.

        Raises KafkaError, Pause while the store of positions is away, Stop on an overrun.
        """
        tps = [TopicPartition(*position) for position in wanted]
        stored = await self._stored_positions(wanted) if self._stored_positions else {}
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
                if low > 0:
                    log.warning("start_after_retention", topic=tp.topic, low_watermark=low)
                start: int | None = low
            else:
                if not self._stored_positions:
                    finished = from_metadata(group[tp].metadata or "", at, self._kafka.log)
                start = self._checked(position, at, low, end, finished)
            if start is None:
                continue
            found.start[position] = start
            found.committed[position] = at_group
            # A log that is shorter than what was finished holds other records by now.
            if finished is not None and finished.end <= end:
                found.finished[position] = finished
        self._say(found.finished)
        return found

    async def after_gap(self, consumer: Any, position: Position, at: int) -> int | None:
        """Where to go on when the broker says that offset `at` is out of range."""
        tp = TopicPartition(*position)
        lows, ends = await asyncio.gather(
            consumer.beginning_offsets([tp]), consumer.end_offsets([tp])
        )
        return self._checked(position, at, lows[tp], ends[tp])

    def _checked(
        self, position: Position, at: int, low: int, end: int, finished: Finished | None = None
    ) -> int | None:
        if at < low:
            lost = low - at - (finished.count(below=low) if finished else 0)
            self._overrun(position, lost)
            return low
        received = finished.end if finished else at
        if received > end:
            self._beyond[position] += 1
            if self._beyond[position] < _BEYOND_TRIES:
                return None
            # The log was cut or the topic made anew: what it holds now has not been read.
            log.error("position_beyond_log", topic=position.topic, position=received, end=end)
            if at > end:
                at = low
        self._beyond.pop(position, None)
        return at

    def _say(self, finished: Mapping[Position, Finished]) -> None:
        if finished:
            count = sum(f.count() for f in finished.values())
            log.info("finished_earlier", pipeline=self._pipeline, records=count)

    def _overrun(self, position: Position, lost: int) -> None:
        if not lost:
            return
        metrics.OVERRUN.labels(self._pipeline).inc(lost)
        log.error(
            "retention_overrun",
            pipeline=self._pipeline,
            topic=position.topic,
            partition=position.partition,
            lost_records=lost,
        )
        if self._kafka.overrun == "stop":
            raise Stop(
                f"{lost} records of {position.topic}/{position.partition} were removed "
                "by retention before they were read; set ASSAY_KAFKA__OVERRUN=continue to go "
                "on without them"
            )


def _behind(stored: int | None, committed: int | None) -> int | None:
    """Where a sink goes on, to which repeats are harmless: None, the first record, where either
    says nothing. A store without a position is new, or a backup from before the partition's first
    record; Kafka forgets what a group committed when the topic is deleted and made anew."""
    return None if stored is None or committed is None else min(stored, committed)
