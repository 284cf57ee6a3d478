"""`make bench`: the real services with ledger, signatures and evidence, on both brokers.

Prints tables and writes the section "pipeline" of build/bench.json. The model is simulated with
no latency, so the figures are those of the pipeline around a model and not of scoring with one.
There is no target and nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.pipeline_run import BenchPlan, run
from tests.bench.report import RESULT, machine, measured_tree, write_section
from tests.bench.scoring_load import Stuck
from tests.fault.running_stack import StackFailed

NOTES = (
    "the model is simulated, well-behaved and without latency",
    "all processes, the broker, the simulated model and the load share the machine's cores",
    "saturated latency is mostly waiting: the stated number of requests is always open",
    "SQLite stores with synchronous=FULL; one replica of each service; four partitions",
)


def main() -> int:
    options = _options()
    plan = BenchPlan(
        events=options.events,
        warm_up=options.warm_up,
        wallets=options.wallets,
        outstanding=options.outstanding,
        rate=options.rate,
        rate_events=options.rate_events,
        slots=options.slots,
        seed=options.seed,
    )
    where = machine()
    brokers: dict[str, dict[str, Any]] = {}
    missing = ""
    for broker in options.brokers.split(","):
        try:
            brokers[broker] = run(
                broker, plan, lambda text: print(text, file=sys.stderr, flush=True)
            )
        except (StackFailed, Stuck) as failure:
            missing = f"{broker} was not measured: {failure}"
    full = BenchPlan()
    quick = plan.events < full.events or plan.rate_events < full.rate_events
    told = {"quick": quick, **measured_tree(), "machine": where}
    section = {"notes": list(NOTES), "brokers": brokers, **told}
    write_section("pipeline", section)
    show(Console(highlight=False, width=110), where, brokers)
    print(f"written to {RESULT}")
    if missing:
        print(missing, file=sys.stderr)
    return 1 if missing else 0


def _options() -> argparse.Namespace:
    plan = BenchPlan()
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.pipeline",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--events", type=int, default=plan.events, help="scored at saturation")
    add("--warm-up", type=int, default=plan.warm_up, help="scored before, not measured")
    add("--wallets", type=int, default=plan.wallets)
    add("--outstanding", type=int, default=plan.outstanding, help="open requests at saturation")
    add("--rate", type=float, default=plan.rate, help="per second, in the low-rate part")
    add("--rate-events", type=int, default=plan.rate_events)
    add("--slots", type=int, default=plan.slots, help="model calls at once")
    add("--seed", type=int, default=plan.seed)
    add("--brokers", default="embedded,kafka")
    return parser.parse_args()


def show(console: Console, where: dict[str, Any], brokers: dict[str, dict[str, Any]]) -> None:
    """The figures as tables, with what they have to be read with."""
    table = Table(title="pipeline: from submission until the signer appends the signed record")
    for heading in ("broker", "scores/s", "cores used", "saturated p50 / p90 / p99 ms",
                    "low rate p50 / p90 / p99 ms", "evidence behind"):  # fmt: skip
        table.add_column(heading, justify="right")
    for broker, found in brokers.items():
        table.add_row(
            broker,
            f"{found['scores_per_s']:.0f}",
            f"{found['cpu_cores_used']:.2f} of {where['cores']}",
            f"{_three(found['saturated_ms'])}  ({found['outstanding']} open)",
            f"{_three(found['at_rate_ms'])}  ({found['rate_per_s']:g}/s)",
            f"{found['evidence_behind_s']:.1f} s",
        )
    console.print(table)
    for broker, found in brokers.items():
        usage = Table(title=f"{broker}: where the CPU time goes")
        for heading in ("process", "CPU ms/score", "share", "RSS MB", "peak MB"):
            usage.add_column(heading, justify="left" if heading == "process" else "right")
        ranked = sorted(found["processes"].values(), key=lambda item: -item["cpu_s"])
        for item in ranked:
            usage.add_row(
                item["what"],
                f"{item['cpu_ms_per_score']:.2f}",
                f"{item['cpu_share']:.0%}",
                f"{item['rss_mb']:.0f}",
                f"{item['peak_rss_mb']:.0f}",
            )
        console.print(usage)
    loads = ", ".join(str(load) for load in where["load_average_before"])
    console.print(f"{where['cores']} cores, {where['cpu']}, load average before: {loads}")
    for note in NOTES:
        console.print(f"- {note}")


def _three(latency: dict[str, float]) -> str:
    return " / ".join(f"{latency[name]:.0f}" for name in ("p50", "p90", "p99"))


if __name__ == "__main__":
    sys.exit(main())
