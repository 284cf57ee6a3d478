"""`python -m tests.fault.run_faults --runs N --seed S`: random faults, each run checked.

Every run has a stack and a seed of its own, so one that fails is repeated with `--runs 1` and the
seed it printed. Writes build/fault.json and exits 0 only if all runs are clean.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fault.fault_run import MISBEHAVING, RunPlan, RunResult, run
from tests.fault.faults import drawn
from tests.fault.findings import VIOLATIONS
from tests.fault.run_20k import table

RESULT = Path("build/fault.json")


def main() -> int:
    options = _options()
    # Our own clients meet the broker's outages too, and say so line by line.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    results = []
    for number in range(options.runs):
        seed = options.seed + number
        plan = RunPlan(
            events=options.events,
            wallets=options.wallets,
            seed=seed,
            broker=options.broker,
            model=options.model,
            # Calls that take a while are in flight when the scorer is killed.
            simulator=(*MISBEHAVING, "--latency-ms=100", "--jitter-ms=200"),
            spread_s=options.spread,
            twice=0.02,
            schedule=drawn(seed, options.spread, options.faults, broker=options.broker == "kafka"),
            environment={"ASSAY_KAFKA__SESSION_TIMEOUT_MS": "6000"},
        )
        say(f"run {number + 1} of {options.runs}, seed {seed}:")
        for planned in plan.schedule:
            say(f"  {planned}")
        result = asyncio.run(run(plan, say))
        results.append(result)
        print(table(result), flush=True)
        _write(results)
    print(f"written to {RESULT}")
    return 0 if all(result.clean for result in results) else 1


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write(results: Sequence[RunResult]) -> None:
    shown = [result.to_json() for result in results]
    document: dict[str, Any] = {
        "runs": len(shown),
        "events": sum(item["events"] for item in shown),
        "clean": all(item["clean"] for item in shown),
        "repeated_model_calls": sum(item["repeated_model_calls"] for item in shown),
        **{kind: sum(item[kind] for item in shown) for kind in VIOLATIONS},
        "each": shown,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fault.run_faults",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--runs", type=int, default=1)
    add("--seed", type=int, default=1, help="of the first run; each further run adds 1")
    add("--events", type=int, default=2_000)
    add("--wallets", type=int, default=100)
    add("--faults", type=int, default=8, help="in each run")
    add("--spread", type=float, default=15.0, help="seconds over which events and faults come")
    add("--broker", default="kafka", help="embedded, kafka or HOST:PORT")
    add("--model", default="simulator", help="as `assay up --model`")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
