"""One run of `assay publish`: records out, bounded, and with --wait their outcomes back."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from assay.cli.in_flight import InFlight
from assay.cli.known_outcomes import KnownOutcomes
from assay.cli.planned import Planned
from assay.cli.printable import printable
from assay.cli.record_files import line_count
from assay.cli.tail import line
from assay.client import Outcome, Outcomes, WalletPublisher, submission_bytes
from assay.errors import RecordTooLarge


class Publishing:
    """`wait_s` is how long to wait without news of any request; None: for publication only."""

    def __init__(
        self, bootstrap: str, *, wait_s: float | None, idempotent: bool, tenant: str, as_json: bool
    ) -> None:
        self._bootstrap = bootstrap
        self._wait_s = wait_s
        self._idempotent = idempotent
        self._as_json = as_json
        self._publisher = WalletPublisher(bootstrap, source="/assay/cli", tenant=tenant)
        self._in_flight = InFlight()
        self._pending: dict[str, int] = {}
        self._known = KnownOutcomes(self._pending)
        self._noticed: set[str] = set()
        self._published = 0
        self._problems = 0
        self._news = asyncio.Event()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._progress.add_task(
            "published" if wait_s is None else "scored", total=None
        )

    async def run(self, files: list[Path]) -> bool:
        """Whether everything was published (with --wait: and signed)."""
        if not self._progress.disable:
            self._progress.update(self._task, total=sum(map(line_count, files)) or None)
        planned = Planned(files, idempotent=self._idempotent, refuse=self._refuse)
        try:
            await self._run(planned)
        except BaseException:
            if self._published:
                self._say_open("ended early")
            raise
        return self._problems == 0

    async def _run(self, planned: Planned) -> None:
        with self._progress:
            if self._wait_s is None:
                async with self._publisher:
                    await self._publish_all(planned)
            else:
                # A repeat's score may lie in the log already; a new request's comes after this.
                start: Literal["earliest", "latest"] = "earliest" if self._idempotent else "latest"
                async with Outcomes(self._bootstrap, start=start) as outcomes, self._publisher:
                    if self._idempotent:
                        await self._look_back(planned, outcomes)
                    await self._publish_and_follow(planned, outcomes, self._wait_s)

    def _say_open(self, why: str) -> None:
        """What has been done and what is open, on stderr."""
        rest = f", {len(self._pending)} without an outcome" if self._pending else ""
        print(f"assay publish: {why}: {self._published} published{rest}", file=sys.stderr)

    async def _publish_and_follow(
        self, planned: Planned, outcomes: Outcomes, wait_s: float
    ) -> None:
        publishing = asyncio.create_task(self._publish_all(planned))
        running = {publishing, asyncio.create_task(self._follow(outcomes))}
        try:
            while self._pending or publishing in running:
                news = asyncio.create_task(self._news.wait())
                done, _ = await asyncio.wait(
                    {news, *running}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                )
                news.cancel()
                self._news.clear()
                if not done:
                    self._give_up(f"no outcome within {wait_s:g} s", publishing in running)
                    return
                for task in done - {news}:
                    running.discard(task)
                    task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _give_up(self, reason: str, records_left: bool) -> None:
        for request in self._pending:
            letter = self._known.dead_letter(request)
            told = f"; a dead letter: {letter.code}: {letter.reason}" if letter else ""
            self._refuse(request, f"{reason}{printable(told)}")
        if records_left:
            self._say_open("the records after these were not published")

    async def _publish_all(self, planned: Planned) -> None:
        async with asyncio.TaskGroup() as group:
            for place, event_id, submission in planned:
                size = len(submission_bytes(submission))
                await self._in_flight.take(size)
                request = self._publisher.request_id(event_id)
                if self._wait_s is not None:
                    self._pending[request] = size
                group.create_task(self._publish_one(place, event_id, submission, size))

    async def _look_back(self, planned: Planned, outcomes: Outcomes) -> None:
        """How the requests stand that were published before: what has ended ends no second time."""
        self._known.wanted = set(map(self._publisher.request_id, planned.event_ids()))
        async for outcome in outcomes.kept():
            self._known.note(outcome)

    async def _publish_one(
        self, place: str, event_id: str, submission: dict[str, Any], size: int
    ) -> None:
        try:
            request = await self._publisher.publish(submission, event_id=event_id)
        except RecordTooLarge as error:
            self._refuse(place, error)
            self._pending.pop(self._publisher.request_id(event_id), None)
            await self._in_flight.give(size)
            return
        self._published += 1
        self._news.set()
        if self._wait_s is None:
            shown = {"request_id": request, "address": submission["address"]}
            print(json.dumps(shown) if self._as_json else request, flush=True)
            self._progress.advance(self._task)
            await self._in_flight.give(size)
        elif known := self._known.end(request):
            await self._end(known)

    async def _follow(self, outcomes: Outcomes) -> None:
        async for outcome in outcomes:
            if outcome.unsealed:  # a client's own request, under the id of one of these
                continue
            if outcome.doubtful:
                self._notice(outcome)
                continue
            if self._idempotent:
                self._known.note(outcome)
            await self._end(outcome)

    async def _end(self, outcome: Outcome) -> None:
        size = self._pending.pop(outcome.request_id, None)
        if size is not None:
            self._show(outcome)
            self._news.set()
            await self._in_flight.give(size)

    def _notice(self, letter: Outcome) -> None:
        """Say it once and wait on: it may be a stranger's, and a signed score follow."""
        request = letter.request_id
        if request in self._pending and request not in self._noticed:
            self._noticed.add(request)
            told = f"{letter.code}: {letter.reason}"
            print(
                f"assay publish: {request}: a dead letter bears this id, perhaps a stranger's: "
                f"{printable(told)}",
                file=sys.stderr,
            )
        self._known.note(letter)

    def _show(self, outcome: Outcome) -> None:
        self._progress.advance(self._task)
        if outcome.score is None:
            self._problems += 1
        if self._as_json:
            print(json.dumps(outcome.to_json()), flush=True)
        elif outcome.score is not None:
            print(line(outcome.score), flush=True)
        else:
            print(
                f"{outcome.request_id}  {outcome.status}: {printable(outcome.reason)}", flush=True
            )

    def _refuse(self, place: str, error: Exception | str) -> None:
        self._problems += 1
        print(f"assay publish: {place}: {error}", file=sys.stderr)
