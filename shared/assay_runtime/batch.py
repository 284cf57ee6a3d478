"""Batch engine for the light hops: many records at a time, in order."""

from __future__ import annotations

import asyncio
import time

from assay_runtime import metrics
from assay_runtime.intake import Intake
from assay_runtime.stage import Stage


class BatchEngine:
    """Polls, handles the whole batch, confirms, completes; one batch at a time.

    It is the ordered case of the window: the batch completes as a whole, so per-partition order
    is the log's order.
    """

    def __init__(self, pipeline: str, intake: Intake, stage: Stage, max_records: int) -> None:
        self._pipeline = pipeline
        self._intake = intake
        self._stage = stage
        self._max_records = max_records
        self._stopping = asyncio.Event()
        self._current: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until `stop`; Stop and unexpected errors of a batch end it."""
        while not self._stopping.is_set():
            admitted = await self._intake.poll(self._max_records, wait_ms=200)
            if not admitted:
                continue
            started = time.perf_counter()
            batch = asyncio.create_task(  # noqa: RUF006 - kept in self._current
                self._stage.run([record for _, record in admitted])
            )
            self._current = batch
            try:
                await batch
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    raise
                continue  # the batch was given up on a rebalance; it will be read again
            finally:
                self._current = None
            for ticket, _ in admitted:
                self._intake.complete(ticket)
            metrics.IN_FLIGHT.labels(self._pipeline).set(self._intake.window.in_flight)
            metrics.HANDLE_SECONDS.labels(self._pipeline).observe(time.perf_counter() - started)

    async def drain(self, seconds: float) -> None:
        """Let the running batch finish within `seconds`, else give it up undone."""
        task = self._current
        if task is None or task.done():
            return
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        # `run` completes the tickets once it is scheduled; let it, before the commit.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def stop(self, seconds: float) -> None:
        """No further intake; the running batch gets `seconds`."""
        self._stopping.set()
        await self.drain(seconds)
