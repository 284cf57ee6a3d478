"""`make bench`: every figure of the README in one run, on this machine, on real Kafka.

Prints tables, writes build/bench.json (a section per row, others are left as they are) and draws
build/bench.svg. Goals are printed beside what was found and nothing fails by them. A row that
cannot be measured, or a variant whose output is not what went in, is told in its section; the
others go on, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from tests.bench import chain, latency, memory, pipeline, scaling
from tests.bench.bench_broker import bench_broker
from tests.bench.panels import panels
from tests.bench.pipeline_run import BenchPlan
from tests.bench.pipeline_run import run as run_pipeline
from tests.bench.plot import render
from tests.bench.report import (
    RESULT,
    commits,
    in_one_line,
    machine,
    measured_tree,
    write_section,
)
from tests.bench.tables import show

ROWS = ("chain", "latency", "scaling", "memory", "pipeline", "model_stage", "http_client")
_ON_THE_BROKER = frozenset(("chain", "latency", "scaling", "memory", "model_stage"))
PLOT = RESULT.with_suffix(".svg")
_ROUNDS = chain.ChainPlan().rounds


def main() -> int:
    options = _options()
    wanted = [row for row in ROWS if row in options.only.split(",")] if options.only else [*ROWS]
    failed: dict[str, str] = {}
    _on_the_broker([row for row in wanted if row in _ON_THE_BROKER], options, failed)
    for row in wanted:
        if row not in _ON_THE_BROKER:
            _row(row, partial(_measure, row, "", Path(), options), options, failed)
    document = json.loads(RESULT.read_text(encoding="utf-8"))
    show(Console(highlight=False, width=118), {row: document[row] for row in wanted})
    where = machine()
    caption = (
        f"{where['cores']} cores, {where['cpu']}, Python {where['python']}; "
        f"{commits(document.values())}; see bench.json"
    )
    PLOT.write_text(render(panels(document), caption), encoding="utf-8")
    print(f"written to {RESULT} and {PLOT}")
    for row, reason in failed.items():
        print(f"{row} was not measured: {reason}", file=sys.stderr)
    return 1 if failed else 0


def _on_the_broker(
    rows: Sequence[str], options: argparse.Namespace, failed: dict[str, str]
) -> None:
    """The rows that share the bench's own broker."""
    if not rows:
        return
    left = [*rows]
    try:
        with bench_broker() as (bootstrap, folder):
            while left:
                row = left.pop(0)
                _row(row, partial(_measure, row, bootstrap, folder, options), options, failed)
    except Exception as error:
        if not left:
            failed["the end of the broker"] = in_one_line(error)
        for row in left:
            _row(row, partial(_fail, error), options, failed)


def _fail(error: Exception) -> NoReturn:
    raise error


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--only", default="", help=f"some of {','.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, one round")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="of the chain")
    parser.add_argument("--variants", default="", help="of the chain; default all")
    options = parser.parse_args()
    if unknown := {row for row in options.only.split(",") if row}.difference(ROWS):
        parser.error(f"--only: no {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    return options


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _row(
    row: str,
    measure: Callable[[], dict[str, Any]],
    options: argparse.Namespace,
    failed: dict[str, str],
) -> None:
    """One section; what fails is on record, told at the end, and the others go on."""
    say(f"{row}: begins")
    quick = options.quick or (row == "chain" and options.rounds < _ROUNDS)
    told = {"quick": quick, **measured_tree(), "machine": machine()}
    started = time.monotonic()
    try:
        section = measure()
    except Exception as error:
        traceback.print_exc()
        section = {"error": in_one_line(error)}
        failed[row] = section["error"]
    failed |= {f"{row}: {name}": why for name, why in section.get("failed", {}).items()}
    took = round(time.monotonic() - started, 1)
    write_section(row, {**section, **told, "took_s": took})
    say(f"{row}: {took:.0f} s")


def _measure(row: str, bootstrap: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    quick = options.quick
    if row == "chain":
        plan = chain.ChainPlan()
        chosen = tuple(options.variants.split(",")) if options.variants else plan.variants
        rounds, events = (1, 5_000) if quick else (options.rounds, plan.events)
        return chain.measure(bootstrap, folder, chain.ChainPlan(events, rounds, chosen), say)
    if row == "latency":
        return latency.measure(bootstrap, folder, events=200 if quick else 1_500)
    if row == "scaling":
        return scaling.measure(bootstrap, folder, say, events=3_000 if quick else 20_000)
    if row == "memory":
        backlog = 100_000 if quick else memory.BACKLOG
        return memory.measure(bootstrap, folder, say, backlog=backlog)
    if row == "pipeline":
        return _pipeline(quick)
    if row == "model_stage":
        some = ["--runs", "1", "--seconds", "3"] if quick else []
        return _by_command("model_stage", ["--bootstrap", bootstrap, *some])
    return _by_command("http_client", ["--rounds", "1", "--calls", "2000"] if quick else [])


def _pipeline(quick: bool) -> dict[str, Any]:
    plan = BenchPlan(events=200, warm_up=50, rate_events=50) if quick else BenchPlan()
    brokers = ("kafka",) if quick else ("kafka", "embedded")
    found = {broker: run_pipeline(broker, plan, say) for broker in brokers}
    return {"notes": list(pipeline.NOTES), "brokers": found}


def _by_command(name: str, options: list[str]) -> dict[str, Any]:
    """A benchmark that is a program of its own and writes build/<name>.json."""
    command = [sys.executable, "-m", f"tests.bench.{name}", *options]
    subprocess.run(command, check=True, stdout=sys.stderr)
    section: dict[str, Any] = json.loads(Path(f"build/{name}.json").read_text(encoding="utf-8"))
    return section


if __name__ == "__main__":
    sys.exit(main())
