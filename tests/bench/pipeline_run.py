"""One broker's measurement of the real services: rate, latency, CPU and memory per process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.bench.process_usage import Usage, usages
from tests.bench.scoring_load import Load, ScoringLoad
from tests.fault.running_stack import RunningStack
from tests.fault.settling import evidence_complete, quiet
from tests.fault.workload import submissions

Say = Callable[[str], None]
# Where a process is no service, what its CPU time stands for.
LABELS = {
    "stack": {"embedded": "mock broker + supervisor", "kafka": "supervisor"},
    "broker": {"kafka": "Apache Kafka"},
    "simulator": {"embedded": "model simulator", "kafka": "model simulator"},
    "load": {"embedded": "publisher + reader", "kafka": "publisher + reader"},
}


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """Counts of events, and how they are submitted; `rate` is per second."""

    events: int = 2_000
    warm_up: int = 200
    wallets: int = 500
    outstanding: int = 400
    rate: float = 20.0
    rate_events: int = 200
    slots: int = 64
    seed: int = 1


async def measure(broker: str, plan: BenchPlan, say: Say) -> dict[str, Any]:
    """Start a stack on `broker`, measure it at saturation and at a low rate, remove it."""
    environment = {"ASSAY_SCORER__SLOTS": str(plan.slots), "ASSAY_LOG__LEVEL": "info"}
    started = time.monotonic()
    with RunningStack(broker, environment=environment) as stack:
        up_s = time.monotonic() - started
        say(f"{broker}: up in {up_s:.1f} s, warming up with {plan.warm_up} events")
        async with ScoringLoad(stack.bootstrap) as load:
            warm = submissions(plan.warm_up, plan.wallets, plan.seed)
            await load.at_saturation(warm, plan.outstanding)
            await quiet(stack, quiet_s=0.5, patience_s=60)
            say(f"{broker}: {plan.events} events, {plan.outstanding} outstanding")
            busy = submissions(plan.events, plan.wallets, plan.seed + 1)
            before = _usages(stack)
            saturated = await load.at_saturation(busy, plan.outstanding)
            at_end = time.monotonic()
            await evidence_complete(stack, patience_s=60)
            evidence_s = time.monotonic() - at_end
            after = _usages(stack)
            say(f"{broker}: {plan.rate_events} events at {plan.rate:g}/s")
            slow = submissions(plan.rate_events, plan.wallets, plan.seed + 2)
            paced = await load.at_rate(slow, plan.rate)
    cpu = {n: after[n].cpu_s - before[n].cpu_s for n in after if n in before}
    return {
        "up_s": round(up_s, 1),
        "events": plan.events,
        "outstanding": plan.outstanding,
        "slots": plan.slots,
        "scores_per_s": round(saturated.per_second, 1),
        "seconds": round(saturated.seconds, 2),
        "evidence_behind_s": round(evidence_s, 2),
        "saturated_ms": _percentiles(saturated),
        "rate_per_s": plan.rate,
        "rate_events": plan.rate_events,
        "at_rate_ms": _percentiles(paced),
        "cpu_cores_used": round(sum(cpu.values()) / (saturated.seconds + evidence_s), 2),
        "processes": _processes(broker, cpu, after, plan.events),
    }


def _usages(stack: RunningStack) -> dict[str, Usage]:
    return usages({**stack.pids(), "load": os.getpid()})


def _percentiles(load: Load) -> dict[str, float]:
    return {name: load.percentile(share) for name, share in
            (("p50", 0.50), ("p90", 0.90), ("p99", 0.99), ("max", 1.0))}  # fmt: skip


def _processes(
    broker: str, cpu: dict[str, float], after: dict[str, Usage], scores: int
) -> dict[str, dict[str, Any]]:
    total = sum(cpu.values()) or 1.0
    return {
        name: {
            "what": LABELS.get(name, {}).get(broker, name),
            "cpu_s": round(spent, 2),
            "cpu_ms_per_score": round(1000 * spent / scores, 3),
            "cpu_share": round(spent / total, 3),
            "rss_mb": round(after[name].rss_mb, 1),
            "peak_rss_mb": round(after[name].peak_rss_mb, 1),
        }
        for name, spent in cpu.items()
    }


def run(broker: str, plan: BenchPlan, say: Say) -> dict[str, Any]:
    """`measure` on an event loop of its own."""
    return asyncio.run(measure(broker, plan, say))
