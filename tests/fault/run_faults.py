"""`python -m tests.fault.run_faults --runs N --seed S`: random faults, each run checked.

Every run has a stack and a seed of its own, so one that fails is repeated with `--runs 1` and the
seed it printed. Writes build/fault.json and exits 0 only if all runs are clean.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fault.fault_run import MISBEHAVING, RunPlan, RunResult, run
from tests.fault.faults import AGGREGATOR, BROKER, DISK, MODEL, POSTGRES, drawn
from tests.fault.findings import VIOLATIONS
from tests.fault.run_20k import table
from tests.fault.surroundings import disk_possible, postgres_possible

RESULT = Path("build/fault.json")
KEPT = Path("build/fault")
# Whoever is stopped is thrown out of its groups soon, and the aggregator's absence is waited out.
QUICK = {
    "ASSAY_KAFKA__SESSION_TIMEOUT_MS": "6000",
    "ASSAY_KAFKA__RETRY_DELAYS_S": "[2, 4, 8]",
    "ASSAY_INGEST__AGGREGATOR_DEADLINE_S": "3",
}


def main() -> int:
    options = parsed()
    # Our own clients meet the broker's outages too, and say so line by line.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    kinds = stores_possible() if options.stores == "all" else [options.stores]
    results = []
    for number in range(options.runs):
        seed = options.seed + number
        plan = planned(options, seed, kinds[seed % len(kinds)])
        say(f"run {number + 1} of {options.runs}, seed {seed}, stores: {plan.stores}")
        for fault in plan.schedule:
            say(f"  {fault}")
        data = KEPT / f"seed-{seed}"
        shutil.rmtree(data, ignore_errors=True)
        result = asyncio.run(run(plan, say, data=data))
        results.append(result)
        print(table(result), flush=True)
        _write(results)
        if result.clean and not options.keep:
            shutil.rmtree(data, ignore_errors=True)
        else:
            say(f"the stack's data and logs are kept in {data}")
    print(f"written to {RESULT}")
    return 0 if all(result.clean for result in results) else 1


def stores_possible() -> list[str]:
    """The kinds of stores that this machine can give, in turn for the seeds."""
    disk, postgres = disk_possible(), postgres_possible()
    if not disk:
        say("no full disk: mounting one of its own needs root")
    if not postgres:
        say("no PostgreSQL on this machine: its absence is not tried")
    found = ["files"]
    found += ["disk"] if disk else []
    found += ["postgres"] if postgres else []
    return found + (["mixed"] if disk and postgres else [])


def planned(options: argparse.Namespace, seed: int, stores: str) -> RunPlan:
    """The run of a seed: everything in it follows from the options and the seed."""
    beside = {MODEL, AGGREGATOR}
    beside |= {DISK} if stores in ("disk", "mixed") else set()
    beside |= {POSTGRES} if stores in ("postgres", "mixed") else set()
    beside |= {BROKER} if options.broker == "kafka" else set()
    return RunPlan(
        events=options.events,
        wallets=options.wallets,
        seed=seed,
        broker=options.broker,
        model=options.model,
        # Calls that take a while are in flight when the scorer is killed.
        simulator=(*MISBEHAVING, "--latency-ms=100", "--jitter-ms=200"),
        stores=stores,
        spread_s=options.spread,
        twice=0.03,
        late=0.03,
        bare=0.05,
        schedule=drawn(seed, options.spread, options.faults, parts=beside),
        environment=QUICK,
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write(results: Sequence[RunResult]) -> None:
    shown = [result.to_json() for result in results]
    document: dict[str, Any] = {
        "runs": len(shown),
        "events": sum(item["events"] for item in shown),
        "clean": all(item["clean"] for item in shown),
        "faults": sum(len(item["faults"]) for item in shown),
        "seeds": [item["seed"] for item in shown],
        "repeated_model_calls": sum(item["repeated_model_calls"] for item in shown),
        "repeated_model_calls_allowed": sum(
            item["counts"]["repeated_model_calls_allowed"] for item in shown
        ),
        "slowest_recovery_s": max(
            (fault["recovery_s"] or 0 for item in shown for fault in item["faults"]), default=0
        ),
        **{kind: sum(item[kind] for item in shown) for kind in VIOLATIONS},
        "each": shown,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command's options, or those given."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fault.run_faults",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--runs", type=int, default=1)
    add("--seed", type=int, default=1, help="of the first run; each further run adds 1")
    add("--events", type=int, default=2_000)
    add("--wallets", type=int, default=100)
    add("--faults", type=int, default=10, help="in each run")
    add("--spread", type=float, default=20.0, help="seconds over which events and faults come")
    add("--broker", default="kafka", help="embedded, kafka or HOST:PORT")
    add("--stores", default="all", choices=("all", "files", "disk", "postgres", "mixed"),
        help="where the services keep theirs; all: in turn")  # fmt: skip
    add("--model", default="simulator", help="as `assay up --model`")
    add("--keep", action="store_true", help=f"{KEPT}/seed-N also of clean runs")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
