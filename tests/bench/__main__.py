"""`make bench`: every figure of the README in one run, on this machine, on real Kafka.

Prints tables, writes build/bench.json (a section per row, others are left as they are) and draws
build/bench.svg. Nothing here passes or fails: goals are printed beside what was found.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from rich.console import Console

from deploy.owned_process import ServerError
from tests.bench import chain, latency, memory, pipeline, scaling
from tests.bench.bench_broker import bench_broker
from tests.bench.hop_chain import ChainFailed
from tests.bench.panels import panels
from tests.bench.pipeline_run import BenchPlan
from tests.bench.pipeline_run import run as run_pipeline
from tests.bench.plot import render
from tests.bench.report import RESULT, machine, write_section
from tests.bench.tables import show
from tests.fault.running_stack import StackFailed

ROWS = ("chain", "latency", "scaling", "memory", "pipeline", "model_stage", "http_client")
_ON_THE_BROKER = frozenset(("chain", "latency", "scaling", "memory", "model_stage"))
PLOT = RESULT.with_suffix(".svg")


def main() -> int:
    options = _options()
    wanted = [row for row in ROWS if row in options.only.split(",")] if options.only else [*ROWS]
    failed: dict[str, str] = {}
    if _ON_THE_BROKER.intersection(wanted):
        with bench_broker() as (bootstrap, folder):
            for row in wanted:
                if row in _ON_THE_BROKER:
                    _row(row, lambda r=row: _measure(r, bootstrap, folder, options), failed)
    for row in wanted:
        if row not in _ON_THE_BROKER:
            _row(row, lambda r=row: _measure(r, "", Path(), options), failed)
    document = json.loads(RESULT.read_text(encoding="utf-8"))
    measured = {row: document[row] for row in wanted if row not in failed}
    show(Console(highlight=False, width=118), measured)
    where = machine()
    caption = f"{where['cores']} cores, {where['cpu']}, Python {where['python']}; see bench.json"
    PLOT.write_text(render(panels(document), caption), encoding="utf-8")
    print(f"written to {RESULT} and {PLOT}")
    for row, reason in failed.items():
        print(f"{row} was not measured: {reason}", file=sys.stderr)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--only", default="", help=f"some of {','.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, one round")
    parser.add_argument("--rounds", type=int, default=4, help="of the chain")
    parser.add_argument("--variants", default="", help="of the chain; default all")
    options = parser.parse_args()
    if unknown := {row for row in options.only.split(",") if row}.difference(ROWS):
        parser.error(f"--only: no {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    return options


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _row(row: str, measure: Callable[[], dict[str, Any]], failed: dict[str, str]) -> None:
    """One section; what fails is told at the end and the others go on."""
    say(f"{row}: begins")
    where, started = machine(), time.monotonic()
    try:
        section = measure()
    except (ChainFailed, KafkaException, StackFailed, ServerError, TimeoutError, OSError,
            subprocess.CalledProcessError) as error:  # fmt: skip
        failed[row] = f"{type(error).__name__}: {error}"
        return
    took = round(time.monotonic() - started, 1)
    write_section(row, {**section, "machine": where, "took_s": took})
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
