"""Batch engine for the light hops: many records at a time, in order."""

from __future__ import annotations

import asyncio
import time

import structlog

from assay_runtime import metrics
from assay_runtime.failures import Stop
from assay_runtime.intake import Intake
from assay_runtime.records import Record
from assay_runtime.stage import Stage
from assay_runtime.window import Ticket

log = structlog.get_logger()

# A handler that does not end when it is cancelled is left behind after this.
_CANCEL_S = 5.0


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
        self._stopping = False
        self._current: asyncio.Task[None] | None = None
        self._given_up = False
        self._in_flight = metrics.IN_FLIGHT.labels(pipeline)
        self._seconds = metrics.HANDLE_SECONDS.labels(pipeline)

    async def run(self) -> None:
        """Until `stop`; Stop and unexpected errors of a batch end it."""
        while not self._stopping:
            admitted = await self._intake.poll(self._max_records, wait_ms=200)
            if admitted and not self._stopping:
                self._given_up = False
                self._current = asyncio.create_task(self._run_batch(admitted))
                await self._outcome(self._current)
                self._current = None

    async def _outcome(self, batch: asyncio.Task[None]) -> None:
        try:
            await asyncio.wait([batch])
        finally:
            batch.cancel()  # only where this task is cancelled itself
        if not batch.cancelled():
            batch.result()
        elif not self._given_up:
            raise Stop("a batch was cancelled by nobody")
        # Given up on a rebalance, it is read again by whoever has the partitions.

    async def _run_batch(self, admitted: list[tuple[Ticket, Record]]) -> None:
        started = time.perf_counter()
        self._in_flight.set(self._intake.window.in_flight)
        await self._stage.run([record for _, record in admitted])
        for ticket, _ in admitted:
            self._intake.complete(ticket)
        self._in_flight.set(self._intake.window.in_flight)
        self._seconds.observe(time.perf_counter() - started)

    async def drain(self, seconds: float) -> None:
        """Let the running batch finish within `seconds`, else give it up undone."""
        batch = self._current
        if batch is None or batch.done():
            return
        await asyncio.wait([batch], timeout=seconds)
        if not batch.done():
            self._given_up = True
            batch.cancel()
            records = self._intake.window.in_flight
            log.error("given_up", pipeline=self._pipeline, records=records, drain_s=seconds)
            await asyncio.wait([batch], timeout=_CANCEL_S)
            if not batch.done():
                log.error("batch_does_not_end", pipeline=self._pipeline)

    async def stop(self, seconds: float) -> None:
        """No further intake; the running batch gets `seconds`."""
        self._stopping = True
        await self.drain(seconds)
