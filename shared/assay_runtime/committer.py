"""Explicit commits of the window's watermarks."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from assay_runtime import metrics
from assay_runtime.window import Window

log = structlog.get_logger()

_INTERVAL_S = 0.1
# aiokafka repeats a commit for as long as the coordinator is away, which would hold up a
# rebalance and the end of the process; what is not committed is only read again.
_PATIENCE_S = 5.0


class Committer:
    """Commits {partition: watermark} and nothing else, one commit at a time."""

    def __init__(self, pipeline: str, window: Window) -> None:
        self._pipeline = pipeline
        self._window = window
        self._lock = asyncio.Lock()
        self._ok = metrics.COMMITS.labels(pipeline, "ok")
        self._failed = metrics.COMMITS.labels(pipeline, "failed")

    async def run(self, consumer: Any) -> None:
        """For as long as the pipeline does; an unexpected error ends it."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await self.commit(consumer)

    async def commit(self, consumer: Any) -> None:
        """Commit every watermark that moved; a failed commit costs repeats, never records."""
        try:
            async with asyncio.timeout(_PATIENCE_S), self._lock:
                moved = self._window.committable()
                if not moved:
                    return
                await consumer.commit(
                    {TopicPartition(*position): offset for position, offset in moved.items()}
                )
        except (KafkaError, TimeoutError) as error:
            self._failed.inc()
            log.warning("commit_refused", pipeline=self._pipeline, error=repr(error))
        else:
            self._ok.inc()
            self._window.committed(moved)
