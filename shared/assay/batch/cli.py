"""`assay batch run`: many units through one process."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from assay.batch.bus_kafka import BatchBus
from assay.batch.folder import FolderError, ResultFolder
from assay.batch.plan import Plan
from assay.batch.preparing import Wanted, prepare
from assay.batch.run import POSITIONS, BatchRun
from assay.batch.standing import Summary
from assay.cli.failures import ending_cleanly
from assay.cli.stack import Bootstrap, default_bootstrap

_INTERRUPTED = 130
_CONFIRM_S = 60.0
_MOST_SHOWN = 10

app = typer.Typer(no_args_is_help=True, help="Many units through one process.")


@app.callback()
def batch() -> None:
    """Many units through one process."""


@app.command()
def run(
    process: Annotated[str, typer.Option(help="Id of the process that the services know.")],
    source: Annotated[
        Path,
        typer.Option(
            "--input",
            metavar="ITEMS.jsonl",
            exists=True,
            dir_okay=False,
            readable=True,
            help='One unit a line: {"unit_id": …, <input fields>}.',
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for results; the same again resumes.")],
    bootstrap: Bootstrap = None,
    max_units: Annotated[
        int | None, typer.Option(min=1, help="Only the first N units of the input.")
    ] = None,
    retry_failures: Annotated[
        bool,
        typer.Option(
            "--retry-failures",
            help="Ask again about units that failed schema_validation or validation.",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Give up after so many seconds without news.")
    ] = 300,
    tenant: Annotated[str, typer.Option(help="Whose requests these are.")] = "default",
    as_json: Annotated[
        bool, typer.Option("--json", help="The summary as one JSON object.")
    ] = False,
) -> None:
    """Ask a process about every unit of a file and collect {step}_validated.jsonl and
    {step}_failures.jsonl in a folder. A step's first file has all answers it accepted. A unit ends
    once: in the last step's validated file, or in the failures file of the step it ended at; also
    where its process then gives an empty result.

    A run that was interrupted or killed goes on where it was when it is started again: what is
    in the folder is never asked again. `unit_id` may be missing; it is then made from the line's
    content. The input fields may also stand in an object `input`. With --retry-failures the old
    records move to {step}_failures.jsonl.bak, and each gets one more attempt, at the step that
    failed, with what the steps before brought, and told why the last one failed;
    pipeline_internal failures stay. After a run that gave up, the next one asks about all open
    units again, from their first step.

    Exit codes: 0 all units are valid; 1 some failed, have no outcome, or stand on unusable lines;
    2 wrong usage; 3 a step has failures and no valid unit; 130 interrupted.
    """
    address = default_bootstrap(bootstrap)
    wanted = Wanted(process, tenant, max_units, retry_failures)
    with source.open("rb") as items, _opened(out) as folder:
        try:
            plan = prepare(folder, items, wanted)
        except FolderError as error:
            raise typer.BadParameter(str(error), param_hint="--out") from None
        _say_skipped(source, plan)
        started = time.monotonic()
        with _progress(plan) as advanced, ending_cleanly("batch", pipe_code=1):
            code, asked = asyncio.run(_run(plan, folder, address, timeout, advanced))
        summary = _summary(plan, asked, time.monotonic() - started)
    _say_summary(summary, out, as_json=as_json)
    raise typer.Exit(code or summary.exit_code)


async def _run(
    plan: Plan,
    folder: ResultFolder,
    address: str,
    timeout: float,  # noqa: ASYNC109 - the command's own option
    advanced: Any,
) -> tuple[int, int]:
    """(exit code where the end itself decides it, else 0; requests published)."""
    saved = folder.load(POSITIONS)
    if saved is None and plan.resumed:
        saved = {"cluster": None, "positions": {}}
    bus = BatchBus(address, saved, _CONFIRM_S)
    batch_run = BatchRun(plan, folder, bus, timeout_s=timeout, advanced=advanced)
    running = asyncio.ensure_future(batch_run.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.cancel)
    try:
        if not await running:
            print(f"assay batch: no news for {timeout:g} s; run it again to go on", file=sys.stderr)
    except asyncio.CancelledError:
        return _INTERRUPTED, batch_run.asked
    return 0, batch_run.asked


@contextmanager
def _opened(path: Path) -> Iterator[ResultFolder]:
    try:
        folder = ResultFolder(path)
    except FolderError as error:
        raise typer.BadParameter(str(error), param_hint="--out") from None
    try:
        yield folder
    finally:
        folder.close()


def _summary(plan: Plan, asked: int, seconds: float) -> Summary:
    units = plan.index.places.keys() | plan.retries.keys()
    return Summary(
        batch=plan.batch.id,
        process=plan.batch.process,
        units=plan.total,
        ended=len(units & plan.standing.ended),
        asked=asked,
        duplicates=plan.index.duplicates,
        unusable=plan.index.unusable,
        seconds=seconds,
        steps=plan.standing.steps,
        zero_valid=plan.standing.zero_valid(),
    )


def _say_skipped(source: Path, plan: Plan) -> None:
    for number, reason in plan.index.skipped[:_MOST_SHOWN]:
        print(f"assay batch: {source}:{number}: {reason}; skipped", file=sys.stderr)
    if (more := len(plan.index.skipped) - _MOST_SHOWN) > 0:
        print(f"assay batch: {more} more lines skipped", file=sys.stderr)


def _say_summary(summary: Summary, out: Path, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary.to_json()), flush=True)
    else:
        for name, count in summary.steps.items():
            print(f"{name}: {count.validated} validated, {count.failed} failed")
        rest = f", {summary.open} open" if summary.open else ""
        took = f"{summary.asked} asked in {summary.seconds:.1f} s"
        print(f"{summary.ended} of {summary.units} units ended{rest}; {took}; {out}", flush=True)
    if not summary.open:
        for step in summary.zero_valid:
            failed, file = summary.steps[step].failed, out / f"{step}_failures.jsonl"
            print(f"assay batch: step {step!r}: none of {failed} units is valid, which points at "
                  f"the process and not at the units; see {file}", file=sys.stderr)  # fmt: skip


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f} units/s" if task.speed else "- units/s")


@contextmanager
def _progress(plan: Plan) -> Iterator[Any]:
    progress = Progress(
        TextColumn(plan.batch.process),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with progress:
        done = plan.total - len(plan.open)
        task = progress.add_task("", total=plan.total, completed=done)
        yield lambda ended: progress.update(task, completed=ended)
