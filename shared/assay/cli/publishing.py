"""One run of `assay publish`: records out, bounded, and with --wait their outcomes back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from assay.cli.in_flight import InFlight
from assay.cli.record_files import line_count, read_records
from assay.cli.tail import line
from assay.client import Outcome, Outcomes, WalletPublisher, submission_bytes
from assay.errors import AssayError, RecordTooLarge
from assay.submission import submission_from_record


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
        self._seen: set[str] = set()
        self._pending: dict[str, int] = {}
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
        try:
            await self._run(files)
        except BaseException:
            if self._published:
                self._say_open("ended early")
            raise
        return self._problems == 0

    async def _run(self, files: list[Path]) -> None:
        with self._progress:
            if self._wait_s is None:
                async with self._publisher:
                    await self._publish_all(files)
            else:
                # A repeat's score may lie in the log already; a new request's comes after this.
                start: Literal["earliest", "latest"] = "earliest" if self._idempotent else "latest"
                async with Outcomes(self._bootstrap, start=start) as outcomes, self._publisher:
                    await self._publish_and_follow(files, outcomes, self._wait_s)

    def _say_open(self, why: str) -> None:
        """What has been done and what is open, on stderr."""
        rest = f", {len(self._pending)} without an outcome" if self._pending else ""
        print(f"assay publish: {why}: {self._published} published{rest}", file=sys.stderr)

    async def _publish_and_follow(
        self, files: list[Path], outcomes: Outcomes, wait_s: float
    ) -> None:
        publishing = asyncio.create_task(self._publish_all(files))
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
            self._refuse(request, reason)
        if records_left:
            self._say_open("the records after these were not published")

    async def _publish_all(self, files: list[Path]) -> None:
        async with asyncio.TaskGroup() as group:
            for place, event_id, submission in self._planned(files):
                size = len(submission_bytes(submission))
                await self._in_flight.take(size)
                request = self._publisher.request_id(event_id)
                if self._wait_s is not None:
                    self._pending[request] = size
                group.create_task(self._publish_one(place, event_id, submission, size))

    def _planned(self, files: list[Path]) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(place, event id, submission) of every usable record; the others are reported."""
        for file in files:
            try:
                for place, record in read_records(file):
                    if (submission := self._submission(place, record)) is None:
                        continue
                    event_id = self._event_id(submission)
                    if event_id not in self._seen:
                        yield place, event_id, submission
                    if self._idempotent:
                        self._seen.add(event_id)
            except OSError as error:
                self._refuse(str(file), error.strerror or error)

    def _submission(self, place: str, record: Any) -> dict[str, Any] | None:
        try:
            if isinstance(record, ValueError):
                raise record
            return submission_from_record(record)
        except (AssayError, ValueError) as error:
            self._refuse(place, error)
            return None

    def _event_id(self, submission: dict[str, Any]) -> str:
        if not self._idempotent:
            return str(uuid.uuid4())
        return hashlib.sha256(json.dumps(submission, sort_keys=True).encode()).hexdigest()

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

    async def _follow(self, outcomes: Outcomes) -> None:
        async for outcome in outcomes:
            if outcome.unsealed:  # a client's own request, under the id of one of these
                continue
            size = self._pending.pop(outcome.request_id, None)
            if size is not None:
                self._show(outcome)
                self._news.set()
                await self._in_flight.give(size)

    def _show(self, outcome: Outcome) -> None:
        self._progress.advance(self._task)
        if outcome.score is None:
            self._problems += 1
        if self._as_json:
            print(json.dumps(outcome.to_json()), flush=True)
        elif outcome.score is not None:
            print(line(outcome.score), flush=True)
        else:
            print(f"{outcome.request_id}  {outcome.status}: {outcome.reason}", flush=True)

    def _refuse(self, place: str, error: Exception | str) -> None:
        self._problems += 1
        print(f"assay publish: {place}: {error}", file=sys.stderr)
