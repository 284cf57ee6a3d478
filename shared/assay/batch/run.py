"""One run of a batch: what is open is asked, bounded, and what comes back is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from assay.batch.bus_kafka import BatchBus, Fetched
from assay.batch.folder import ResultFolder
from assay.batch.items import BadItem
from assay.batch.lines import result_line
from assay.batch.plan import MANIFEST, Plan
from assay.batch.step_outcomes import (
    DEAD_LETTERS,
    NoProcess,
    StepOutcome,
    internal_failure,
    named_request,
    read_step_outcome,
)
from assay.batch.window import Window
from assay.errors import AssayError

POSITIONS = "positions.json"
# Where no step has been heard of: every unit failed before one began.
NO_STEP = "request"
_SAVE_S = 1.0


class BatchRun:
    """`timeout_s` is how long to wait without news of any unit; `advanced` is called with the
    number of units ended so far."""

    def __init__(
        self, plan: Plan, folder: ResultFolder, bus: BatchBus, *, timeout_s: float,
        advanced: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._plan = plan
        self._folder = folder
        self._bus = bus
        self._timeout_s = timeout_s
        self._advanced = advanced
        self._window = Window()
        self._open = dict(plan.open)
        self._sent: set[str] = set()
        self._stepless: list[StepOutcome] = []
        self._passed: set[tuple[str, str | None]] = set()
        self._last_news = self._last_save = time.monotonic()
        self.asked = 0

    async def run(self) -> bool:
        """Whether every unit ended; False where there was no news for too long."""
        async with self._bus:
            try:
                return await self._run()
            finally:
                self._keep(save=True)

    async def _run(self) -> bool:
        self._folder.save(POSITIONS, self._bus.to_save())
        waiting_for = await self._catch_up()
        for request in waiting_for:
            self._window.hold(request)
        self._last_news = time.monotonic()
        publishing = asyncio.create_task(self._publish(set(self._open) - waiting_for))
        try:
            while self._open:
                await self._collect()
                if publishing.done():
                    publishing.result()
                if time.monotonic() - self._last_news > self._timeout_s:
                    await self._bus.forget_asked()
                    return False
        except NoProcess as reason:
            await self._bus.forget_asked()
            raise AssayError(f"{reason}; nothing was written for the units asked") from None
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
        # Topics are read side by side: a step's answer may be read after the end of its unit.
        await self._take_backlog()
        self._place_stepless(self._plan.first_step or self._plan.failed_step or NO_STEP)
        return True

    async def _catch_up(self) -> set[str]:
        """Read what came since the last run; the requests that are on their way from then."""
        if not self._plan.resumed or not self._open:
            return set()
        refused = await self._take_backlog()
        return await self._bus.asked(self._open) - refused

    async def _take_backlog(self) -> set[str]:
        """Read all that the broker has now; the requests that named no process there is."""
        refused: set[str] = set()
        backlog = await self._bus.backlog()
        while await backlog():
            for record in await self._bus.fetch():
                try:
                    self._take(record)
                except NoProcess:
                    refused.add(named_request(record.headers) or "")
            self._keep()
        return refused

    async def _publish(self, requests: set[str]) -> None:
        async with asyncio.TaskGroup() as group:
            for request in [request for request in self._plan.open if request in requests]:
                if request not in self._open:
                    continue
                try:
                    message = self._plan.message(request)
                except BadItem as bad:
                    failure = internal_failure("$", "unusable_item", str(bad))
                    outcome = StepOutcome(request, None, True, None, failure=failure, began=False)
                    self._ended(outcome)
                    continue
                await self._window.take(request, len(message.value))
                self._sent.add(request)
                self.asked += 1
                self._last_news = time.monotonic()
                group.create_task(self._bus.send(message))

    async def _collect(self) -> None:
        for record in await self._bus.fetch():
            try:
                self._take(record)
            except NoProcess:
                if named_request(record.headers) in self._sent:
                    raise
        self._keep()

    def _take(self, record: Fetched) -> None:
        """A record of one of our requests ends a step, or is a sign of life."""
        named = named_request(record.headers)
        if named not in self._plan.requests:
            return
        try:
            outcome = read_step_outcome(record.topic, record.value, record.headers)
        except ValueError:
            return  # no service of ours wrote it
        if named in self._open:
            self._last_news = time.monotonic()
            self._window.widen()
        if outcome is None or outcome.request_id not in self._plan.requests:
            return
        if not outcome.last:
            self._passed.add((outcome.request_id, outcome.step))
            self._write(outcome)
        elif outcome.request_id not in self._open:
            return
        elif self._ended(outcome) and record.topic in DEAD_LETTERS:
            self._bus.hold(record)

    def _ended(self, outcome: StepOutcome) -> bool:
        """Take in the end of a unit; True where its line waits until the first step is known."""
        if outcome.failure and (outcome.request_id, outcome.step) in self._passed:
            return False  # a second answer to a step whose first one led on
        waits = outcome.step is None and not outcome.began and not self._plan.first_step
        if waits:
            self._stepless.append(outcome)
        else:
            self._write(outcome)
        self._open_no_more(outcome.request_id)
        return waits

    def _write(self, outcome: StepOutcome) -> None:
        unit = self._plan.requests[outcome.request_id]
        valid = outcome.failure is None
        step = self._plan.step_of(outcome)
        if valid and not self._plan.first_step:
            # A unit's steps share a partition, so the first acceptance read is of a first step.
            self._plan.first_step = step
            self._folder.save(MANIFEST, self._plan.manifest())
            self._place_stepless(step)
        elif not valid and outcome.began:
            self._plan.failed_step = self._plan.failed_step or step
        self._add(step, unit, outcome)

    def _add(self, step: str, unit: str, outcome: StepOutcome) -> None:
        valid = outcome.failure is None
        if self._plan.standing.note(step, unit, valid=valid, last=outcome.last):
            line = result_line(*self._plan.given(outcome.request_id), outcome)
            self._folder.add(step, "validated" if valid else "failures", line)

    def _open_no_more(self, request: str) -> None:
        self._open.pop(request, None)
        self._window.give(request)
        self._last_news = time.monotonic()

    def _place_stepless(self, step: str) -> None:
        waiting, self._stepless = self._stepless, []
        for outcome in waiting:
            self._add(step, self._plan.requests[outcome.request_id], outcome)

    def _keep(self, *, save: bool = False) -> None:
        """Lines first, positions after them."""
        self._folder.commit()
        self._advanced(self._plan.total - len(self._open))
        now = time.monotonic()
        if save or now - self._last_save > _SAVE_S:
            if not self._stepless:
                self._bus.release()
            self._folder.save(POSITIONS, self._bus.to_save())
            self._last_save = now
