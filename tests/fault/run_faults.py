"""`python -m tests.fault.run_faults --runs N --seed S`: random faults, each run checked.

Every run has a stack and a seed of its own, so one that fails is repeated with `--runs 1` and the
seed it printed. Writes build/fault.json after each and exits 0 only if all in it are clean, 130
when cut short; `--resume` goes on where such a series ended.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from deploy.kafka.cut_network import possible as wire_possible
from tests.fault.acts import AGGREGATOR, BROKER, DISK, MODEL, POSTGRES
from tests.fault.fault_run import MISBEHAVING, RunPlan, RunResult, run
from tests.fault.faults import drawn
from tests.fault.record import Record, commit
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
    can = possible(options)
    record = Record(RESULT, commit(), {**_meant(options), "possible": can})
    seeds = range(options.seed, options.seed + options.runs)
    done = _resumed(record) if options.resume else set()
    left = [seed for seed in seeds if seed not in done]
    try:
        for number, seed in enumerate(left):
            estimate = f", about {record.left_s(len(left) - number) / 60:.0f} min left"
            say(f"run {number + 1} of {len(left)}, seed {seed}{estimate if record.runs else ''}")
            _one(options, seed, can, record)
    except (KeyboardInterrupt, asyncio.CancelledError):
        say(f"cut short; {len(record.runs)} whole runs are recorded, --resume goes on after them")
        return 130
    print(f"{len(record.runs)} runs of {record.document()['events']} events, written to {RESULT}")
    return 0 if record.clean else 1


def _one(options: argparse.Namespace, seed: int, can: Sequence[str], record: Record) -> None:
    """A run that breaks down is recorded too, and the next may be better."""
    plan = planned(options, seed, can)
    say(f"  stores: {plan.stores}")
    for fault in plan.schedule:
        say(f"  {fault}")
    data = KEPT / f"seed-{seed}"
    shutil.rmtree(data, ignore_errors=True)
    # Hours may pass since the first run, and the tree may not be what it was.
    started, tree = time.monotonic(), commit()
    try:
        result = asyncio.run(_until_cut(run(plan, say, data=data)))
    except Exception as error:
        traceback.print_exc()
        shown, clean = plan.broken_down(error), False
    else:
        print(table(result), flush=True)
        shown, clean = result.to_json(), result.clean
    record.add({"commit": tree, **shown}, time.monotonic() - started)
    if clean and not options.keep:
        shutil.rmtree(data, ignore_errors=True)
    else:
        say(f"the stack's data and logs are kept in {data}")


async def _until_cut(work: Coroutine[Any, Any, RunResult]) -> RunResult:
    """SIGTERM and SIGINT cancel: faults are over, and what was started is ended."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await work
    except Exception as error:
        if task.cancelling():  # what failed on the way out is no failure of the run
            raise asyncio.CancelledError from error
        raise


def _meant(options: argparse.Namespace) -> dict[str, Any]:
    """The options that make a run what it is."""
    beside = ("runs", "seed", "resume", "keep")
    return {name: value for name, value in vars(options).items() if name not in beside}


def _resumed(record: Record) -> set[int]:
    done = record.resume()
    if done:
        say(f"{len(done)} runs of this commit and these options are in {RESULT} already")
    else:
        say(f"nothing of this commit and these options is in {RESULT}, or the tree is changed")
    return done


def possible(options: argparse.Namespace) -> list[str]:
    """What this machine can take away beside what it always can; the rest is said once and left
    out of every draw."""
    reasons = {
        "disk": (disk_possible, "no full disk: mounting one of its own needs root"),
        "postgres": (postgres_possible, "no PostgreSQL on this machine: its absence is not tried"),
        "wire": (wire_possible, "no cut wire: a network of its own needs root and iproute2"),
    }
    if options.broker != "kafka":
        del reasons["wire"]
    found = []
    for name, (can, reason) in reasons.items():
        if can():
            found.append(name)
        else:
            say(reason)
    return found


def stores_of(options: argparse.Namespace, seed: int, can: Sequence[str]) -> str:
    """The kind of stores of a seed: those asked for, or in turn those that the machine can give."""
    if options.stores != "all":
        return str(options.stores)
    kinds = ["files", *(kind for kind in ("disk", "postgres") if kind in can)]
    kinds += ["mixed"] if len(kinds) == 3 else []
    return kinds[seed % len(kinds)]


def planned(options: argparse.Namespace, seed: int, can: Sequence[str]) -> RunPlan:
    """The run of a seed: everything in it follows from the options, the seed and what the machine
    can take away."""
    stores, wire = stores_of(options, seed, can), "wire" in can
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
        wire=wire,
        spread_s=options.spread,
        twice=0.03,
        late=0.03,
        bare=0.05,
        schedule=drawn(
            seed,
            options.spread,
            options.faults,
            parts=beside,
            wire=wire,
            longest_s=options.longest,
        ),
        environment=QUICK,
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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
    add("--longest", type=float, default=15.0, help="seconds that a fault may last at most")
    add("--broker", default="kafka", help="embedded, kafka or HOST:PORT")
    add("--stores", default="all", choices=("all", "files", "disk", "postgres", "mixed"),
        help="where the services keep theirs; all: in turn")  # fmt: skip
    add("--model", default="simulator", help="as `assay up --model`")
    add("--resume", action="store_true",
        help=f"go on with the series in {RESULT}: same options, same code")  # fmt: skip
    add("--keep", action="store_true", help=f"{KEPT}/seed-N also of clean runs")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
