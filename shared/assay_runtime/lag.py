"""How many records a consumer is behind, also while it does not read."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from assay_runtime import metrics
from assay_runtime.leaders import leaderless
from assay_runtime.records import Position
from assay_runtime.window import Window

_LOOK_S = 2.0
_ASK_S = 10.0
_PATIENCE_S = 5.0


class Lag:
    """The gauge over the assigned partitions.

    A partition is not fetched while records of it wait to be handed out, as in an outage: the end
    that came with its last fetch stands still while the log grows. So the broker is asked too.
    """

    def __init__(self, pipeline: str, window: Window) -> None:
        self._window = window
        self._ends: dict[Position, int] = {}
        self._gauge = metrics.LAG.labels(pipeline)

    async def run(self, consumer: Any) -> None:
        """For as long as the pipeline does; where the broker does not answer, what it said last
        is kept."""
        asked = time.monotonic()
        while True:
            self._gauge.set(self.records(consumer))
            await asyncio.sleep(_LOOK_S)
            if time.monotonic() - asked >= _ASK_S:
                with contextlib.suppress(KafkaError, OSError, TimeoutError):
                    await self._ask(consumer)
                asked = time.monotonic()

    def records(self, consumer: Any) -> int:
        """Between the window's watermarks and the ends of the logs, as far as those are known."""
        assigned = consumer.assignment()
        total = 0
        for position in self._window.positions():
            tp = TopicPartition(*position)
            fetched = consumer.highwater(tp) if tp in assigned else None
            end = max(fetched or 0, self._ends.get(position, 0))
            total += max(0, end - (self._window.watermark(position) or 0))
        return total

    async def _ask(self, consumer: Any) -> None:
        positions = self._window.positions()
        # One without a leader would fail the question about all.
        led = set(positions).difference(leaderless(consumer, positions))
        if not led:
            return
        async with asyncio.timeout(_PATIENCE_S):
            answer = await consumer.end_offsets([TopicPartition(*position) for position in led])
        self._ends = {p: end for p, end in self._ends.items() if p in positions}
        self._ends |= {Position(tp.topic, tp.partition): end for tp, end in answer.items()}
