"""`assay publish`: wallet records from files to the bus."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from aiokafka.errors import KafkaError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from assay.cli.stack import default_bootstrap
from assay.cli.tail import line
from assay.client import Outcome, Outcomes, WalletPublisher
from assay.errors import AssayError
from assay.submission import submission_from_record

_IN_FLIGHT = 64
_BYTES_IN_FLIGHT = 4_000_000


def publish(
    files: Annotated[
        list[Path], typer.Argument(help="Wallet records, JSON or JSONL; - for standard input.")
    ],
    bootstrap: Annotated[
        str | None, typer.Option(help="Broker host:port; default: the running stack.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the signed scores.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Longest --wait, in seconds.")] = 300,
    idempotent: Annotated[
        bool,
        typer.Option(
            "--idempotent", help="The same record again is the same request, not a new one."
        ),
    ] = False,
    tenant: Annotated[str, typer.Option(help="The input topic's tenant.")] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Publish wallet records and print their request ids; with --wait their signed scores.

    Exit codes: 0 all published (with --wait: all signed); 1 otherwise, with the reason per record.
    """
    address = default_bootstrap(bootstrap)
    job = _Job(address, wait, timeout, idempotent, tenant, as_json)
    try:
        complete = asyncio.run(job.run(files))
    except (KafkaError, LookupError) as error:
        print(f"assay publish: broker at {address}: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    if not complete:
        raise typer.Exit(1)


def read_records(file: Path) -> Iterator[tuple[str, Any]]:
    """(place, parsed JSON) per record: one JSON document, a JSON array, or one document a line.

    A line that is no JSON is yielded as its ValueError, so that its neighbours still go out.
    """
    text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    try:
        document = json.loads(text)
    except ValueError as error:
        lines = [(n, row) for n, row in enumerate(text.splitlines(), 1) if row.strip()]
        if len(lines) < 2 or not lines[0][1].rstrip().endswith("}"):
            yield str(file), error
            return
        for number, row in lines:
            try:
                yield f"{file}:{number}", json.loads(row)
            except ValueError as line_error:
                yield f"{file}:{number}", line_error
        return
    if isinstance(document, list):
        yield from ((f"{file}[{index}]", item) for index, item in enumerate(document))
    else:
        yield str(file), document


class _Room:
    """Bounds what is on its way, in records and bytes, so that a broker with little memory is
    not handed more than its consumers have read."""

    def __init__(self, records: int, size: int) -> None:
        self._records = records
        self._size = size
        self._changed = asyncio.Condition()

    async def take(self, size: int) -> None:
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._records > 0 and (self._size > 0 or self._records == _IN_FLIGHT)
            )
            self._records -= 1
            self._size -= size

    async def give(self, size: int) -> None:
        async with self._changed:
            self._records += 1
            self._size += size
            self._changed.notify_all()


class _Job:
    """One run of the command."""

    def __init__(
        self,
        bootstrap: str,
        wait: bool,
        timeout: float,
        idempotent: bool,
        tenant: str,
        as_json: bool,
    ) -> None:
        self._bootstrap = bootstrap
        self._wait = wait
        self._timeout = timeout
        self._idempotent = idempotent
        self._as_json = as_json
        self._publisher = WalletPublisher(bootstrap, source="/assay/cli", tenant=tenant)
        self._room = _Room(_IN_FLIGHT, _BYTES_IN_FLIGHT)
        self._pending: dict[str, int] = {}
        self._drained = asyncio.Event()
        self._problems = 0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._progress.add_task("scored" if wait else "published", total=None)

    async def run(self, files: list[Path]) -> bool:
        """Whether everything was published (with --wait: and signed)."""
        planned = list(self._plan(files))
        self._progress.update(self._task, total=len(planned))
        with self._progress:
            if not self._wait:
                async with self._publisher:
                    await self._publish_all(planned)
                return self._problems == 0
            # A repeat's score may lie in the log already; a new request's comes after this point.
            start: Literal["earliest", "latest"] = "earliest" if self._idempotent else "latest"
            async with Outcomes(self._bootstrap, start=start) as outcomes, self._publisher:
                follower = asyncio.create_task(self._follow(outcomes))
                try:
                    await self._publish_all(planned)
                    await self._wait_for_outcomes(follower)
                finally:
                    follower.cancel()
        return self._problems == 0

    def _plan(self, files: list[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
        """(event id, submission) of every usable record; the others are reported."""
        for file in files:
            try:
                for place, record in read_records(file):
                    submission = self._submission(place, record)
                    if submission is None:
                        continue
                    content = json.dumps(submission, sort_keys=True).encode()
                    event_id = (
                        hashlib.sha256(content).hexdigest()
                        if self._idempotent
                        else str(uuid.uuid4())
                    )
                    self._pending[self._publisher.request_id(event_id)] = len(content)
                    yield event_id, submission
            except (OSError, UnicodeDecodeError) as error:
                self._refuse(str(file), error)

    def _submission(self, place: str, record: Any) -> dict[str, Any] | None:
        try:
            if isinstance(record, ValueError):
                raise record
            return submission_from_record(record)
        except (AssayError, ValueError) as error:
            self._refuse(place, error)
            return None

    async def _publish_all(self, planned: list[tuple[str, dict[str, Any]]]) -> None:
        async with asyncio.TaskGroup() as group:
            for event_id, submission in planned:
                size = self._pending.get(self._publisher.request_id(event_id))
                if size is None:
                    continue  # the same record again, already scored
                await self._room.take(size)
                group.create_task(self._publish_one(event_id, submission, size))

    async def _publish_one(self, event_id: str, submission: dict[str, Any], size: int) -> None:
        request = await self._publisher.publish(submission, event_id=event_id)
        if not self._wait:
            shown = {"request_id": request, "address": submission["address"]}
            print(json.dumps(shown) if self._as_json else request, flush=True)
            self._progress.advance(self._task)
            await self._room.give(size)

    async def _follow(self, outcomes: Outcomes) -> None:
        async for outcome in outcomes:
            if outcome.request_id in self._pending:
                await self._finish(outcome)

    async def _wait_for_outcomes(self, follower: asyncio.Task[None]) -> None:
        drained = asyncio.create_task(self._drained.wait())
        if self._pending:
            await asyncio.wait(
                (drained, follower),
                timeout=self._timeout,
                return_when=asyncio.FIRST_COMPLETED,
            )
        drained.cancel()
        if follower.done():
            follower.result()
        for request in self._pending:
            self._refuse(request, f"no outcome within {self._timeout:g} s")

    async def _finish(self, outcome: Outcome) -> None:
        size = self._pending.pop(outcome.request_id)
        self._progress.advance(self._task)
        if outcome.score is None:
            self._problems += 1
        if self._as_json:
            print(json.dumps(outcome.to_json()), flush=True)
        elif outcome.score is not None:
            print(line(outcome.score), flush=True)
        else:
            print(f"{outcome.request_id}  {outcome.status}: {outcome.reason}", flush=True)
        if not self._pending:
            self._drained.set()
        await self._room.give(size)

    def _refuse(self, place: str, error: Exception | str) -> None:
        self._problems += 1
        print(f"assay publish: {place}: {error}", file=sys.stderr)
