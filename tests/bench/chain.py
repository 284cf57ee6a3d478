"""Five pass-through hops with the real event model, beside five other ways to build them.

All in one run on one real Kafka, round by round in turn: the floor (bare aiokafka and orjson,
nothing validated), the floor tuned as the runtime is, the project's runtime, and with the
same pydantic model quixstreams, FastStream in batches and FastStream as documented. CPU is that of
the hop processes, measured by the kernel; it is the robust figure where others use the machine as
well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.chain_check import check
from tests.bench.chain_events import SAMPLED_SHARE, Row, rows
from tests.bench.figures import median_of, paired_ratio
from tests.bench.hop_chain import HOPS, ChainFailed, HopChain, python_module
from tests.bench.rivals import rival_python

FLOOR, TUNED_FLOOR, OURS = "floor", "tuned_floor", "chain"
QUIX = "quixstreams"
COMMANDS: dict[str, list[str]] = {
    FLOOR: python_module("tests.bench.hops.floor"),
    TUNED_FLOOR: python_module("tests.bench.hops.tuned_floor"),
    OURS: python_module("tests.bench.hops.ours"),
    "faststream_batch": python_module("tests.bench.hops.faststream_batch_hop"),
    "faststream": python_module("tests.bench.hops.faststream_hop"),
}
GOAL_RATE, GOAL_CPU = 0.80, 1.5
# What confirms every message before the next manages a few hundred a second.
_SLOW = {"faststream": 20}
_WARM_UP = 500
_SETTLE_S = 0.5


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """`events` per variant and round, fewer for the slow ones."""

    events: int = 40_000
    rounds: int = 4
    variants: tuple[str, ...] = (FLOOR, TUNED_FLOOR, OURS, QUIX, "faststream_batch", "faststream")


def measure(
    bootstrap: str, folder: Path, plan: ChainPlan, say: Callable[[str], None]
) -> dict[str, Any]:
    """Rounds per variant, their medians, and the ratios to the floor of the same round.

    A variant that cannot be installed is `missing`; one that ended, or whose output is not what
    went in, is `failed`, with all its rounds.
    """
    commands = dict(COMMANDS)
    missing: dict[str, str] = {}
    failed: dict[str, str] = {}
    if QUIX in plan.variants:
        try:
            commands[QUIX] = python_module("tests.bench.hops.quix_hop", str(rival_python(say)))
        except OSError as error:
            missing[QUIX] = str(error)
    work, warm_up = list(rows(plan.events)), list(rows(_WARM_UP, seed=2))
    found: dict[str, list[dict[str, float]]] = {}
    # The broker's JVM gets faster for a minute, and who comes after another finds it removing that
    # one's topics: a run that does not count, then every other round the other way round.
    with HopChain(bootstrap, "cold", commands[FLOOR], folder) as chain:
        run_once(chain, warm_up, work)
    for number in range(plan.rounds):
        for variant in plan.variants[:: -1 if number % 2 else 1]:
            if variant in missing or variant in failed:
                continue
            some = work[: plan.events // _SLOW.get(variant, 1)]
            name = f"{variant}.{number}"
            try:
                with HopChain(bootstrap, name, commands[variant], folder) as chain:
                    result = run_once(chain, warm_up, some)
                    check(bootstrap, chain.topics[-1], [*warm_up, *some])
            except ChainFailed as failure:
                failed[variant] = str(failure)
                say(f"chain: {variant} failed: {failure}")
                continue
            say(f"chain: {name}: {result['per_s']:.0f}/s, {result['cpu_us']:.1f} us/message-hop")
            found.setdefault(variant, []).append(result)
    return {
        "events": plan.events,
        "rounds": plan.rounds,
        "hops": HOPS,
        "event_bytes": len(work[0].value),
        "sampled_share": SAMPLED_SHARE,
        "variants": summary({v: r for v, r in found.items() if v not in failed}),
        "missing": missing,
        "failed": failed,
        "goals": {"rate_ratio": GOAL_RATE, "cpu_ratio": GOAL_CPU},
    }


def run_once(chain: HopChain, warm_up: Sequence[Row], work: Sequence[Row]) -> dict[str, float]:
    """Rate from the first event published to the last one out, CPU per message and hop; a
    result only where `check` finds nothing."""
    chain.await_members()
    chain.feed(warm_up)
    chain.await_output(len(warm_up))
    time.sleep(_SETTLE_S)
    cpu, started = chain.cpu_s(), time.monotonic()
    chain.feed(work)
    ended = chain.await_output(len(warm_up) + len(work))
    time.sleep(_SETTLE_S)  # the last commits belong to it
    spent, usage = chain.cpu_s() - cpu, chain.usage()
    return {
        "per_s": len(work) / (ended - started),
        "cpu_us": spent / len(work) / HOPS * 1e6,
        "peak_rss_mb": max(one.peak_rss_mb for one in usage),
    }


def summary(found: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, dict[str, Any]]:
    """Medians per variant, and ratios to the floor where it ran."""
    made: dict[str, dict[str, Any]] = {}
    for variant, results in found.items():
        made[variant] = {
            "per_s": round(median_of(results, "per_s"), 1),
            "cpu_us": round(median_of(results, "cpu_us"), 2),
            "peak_rss_mb": round(median_of(results, "peak_rss_mb"), 1),
            "rounds": [{name: round(value, 2) for name, value in r.items()} for r in results],
        }
        if len(found.get(FLOOR, ())) == len(results):
            made[variant]["rate_ratio"] = round(paired_ratio(results, found[FLOOR], "per_s"), 3)
            made[variant]["cpu_ratio"] = round(paired_ratio(results, found[FLOOR], "cpu_us"), 3)
    return made
