"""Explicit commits of the window's watermarks, with what is finished above them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import InvalidCommitOffsetSizeError, KafkaError, OffsetMetadataTooLargeError
from aiokafka.structs import OffsetAndMetadata

from assay_runtime import metrics
from assay_runtime.finished import METADATA_BYTES, to_metadata
from assay_runtime.records import Position
from assay_runtime.window import Mark, Window

log = structlog.get_logger()

_INTERVAL_S = 0.1
_RETRY_S = 0.5
# A start that the group does not have is due without a completion.
_LOOK_S = 1.0
# aiokafka repeats a commit for as long as the coordinator is away, which would hold up a
# rebalance and the end of the process; what is not committed is only read again.
_PATIENCE_S = 5.0
# The answer may have come while a busy machine did not let this process run.
_ONCE_MORE_S = 1.0


class Committer:
    """Commits {partition: watermark} and nothing else, one commit at a time.

    A completion is committed at once, but `interval_s` after the commit before it at the
    earliest; `on_commit` is told of each that succeeded. `incarnation` names the topics'.
    """

    def __init__(self, pipeline: str, window: Window, incarnation: str) -> None:
        self.interval_s = _INTERVAL_S
        self.on_commit: Callable[[], None] = lambda: None
        self._pipeline = pipeline
        self._window = window
        self._incarnation = incarnation
        self._metadata_bytes = METADATA_BYTES
        self._lock = asyncio.Lock()
        self._due = asyncio.Event()
        self._ok = metrics.COMMITS.labels(pipeline, "ok")
        self._failed = metrics.COMMITS.labels(pipeline, "failed")

    def wake(self) -> None:
        """There is something to commit."""
        self._due.set()

    async def run(self, consumer: Any) -> None:
        """For as long as the pipeline does; an unexpected error ends it."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._due.wait()
            self._due.clear()
            if await self.commit(consumer):
                await asyncio.sleep(self.interval_s)
            else:
                self._due.set()
                await asyncio.sleep(_RETRY_S)

    async def commit_last(self, consumer: Any) -> None:
        """Before partitions go, when nothing runs any more. Tried a second time; what stays
        uncommitted even so is said, because it will be handled again."""
        if not await self.commit(consumer):
            await self.commit(consumer, again=True)
        if left := self._window.uncommitted:
            log.error("finished_not_committed", pipeline=self._pipeline, records=left)

    async def commit(self, consumer: Any, *, again: bool = False) -> bool:
        """Commit every watermark that moved; a failed commit costs repeats, never records."""
        try:
            async with asyncio.timeout(_ONCE_MORE_S if again else _PATIENCE_S), self._lock:
                marks = self._window.committable()
                if not marks:
                    return True
                await self._send(consumer, marks)
        except (KafkaError, TimeoutError) as error:
            self._failed.inc()
            log.warning("commit_refused", pipeline=self._pipeline, error=repr(error))
            return False
        self._ok.inc()
        self._window.committed(marks)
        self.on_commit()
        return True

    async def _send(self, consumer: Any, marks: Mapping[Position, Mark]) -> None:
        try:
            await consumer.commit(self._offsets(marks))
        except (OffsetMetadataTooLargeError, InvalidCommitOffsetSizeError) as error:
            # A broker that takes less than Kafka's default: finished records may be repeated.
            log.warning("finished_not_kept", pipeline=self._pipeline, error=repr(error))
            self._metadata_bytes = 0
            await consumer.commit(self._offsets(marks))

    def _offsets(self, marks: Mapping[Position, Mark]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            TopicPartition(*position): OffsetAndMetadata(
                mark.offset,
                to_metadata(
                    mark.offset, mark.end, mark.unfinished, self._incarnation, self._metadata_bytes
                ),
            )
            for position, mark in marks.items()
        }
