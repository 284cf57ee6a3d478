"""One run: a stack, a workload, faults, and then the checker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fault.checker import check_run
from tests.fault.faults import Planned, inflict
from tests.fault.findings import Findings
from tests.fault.running_stack import RunningStack
from tests.fault.settling import all_ended, quiet
from tests.fault.workload import publish, submissions

Say = Callable[[str], None]
MISBEHAVING = ("--fault-rate=0.3", "--hang-rate=0.02")
_SETTLE_S = 120.0


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run submits and under which conditions; times in seconds.

    `spread_s` spreads the submissions over time (0: as fast as they go), `twice` is the share
    submitted twice. `deadline_s` and `slots` are the scorer's.
    """

    events: int
    wallets: int
    seed: int
    broker: str
    model: str = "simulator"
    simulator: tuple[str, ...] = MISBEHAVING
    spread_s: float = 0.0
    twice: float = 0.01
    deadline_s: float = 2.0
    slots: int = 64
    patience_s: float = 60.0
    schedule: Sequence[Planned] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, str]:
        return {
            "ASSAY_SCORER__DEADLINE_S": f"{self.deadline_s:g}",
            "ASSAY_SCORER__SLOTS": str(self.slots),
            **self.environment,
        }


@dataclass(frozen=True, slots=True)
class RunResult:
    """What the checker found, which faults met their part, and the seconds from the first
    submission to the last ending."""

    plan: RunPlan
    findings: Findings
    inflicted: Sequence[Planned]
    seconds: float

    @property
    def clean(self) -> bool:
        """No violation, and every request has its signed score: nothing ended without one."""
        counts = self.findings.counts
        return self.findings.clean and counts["signed"] == counts["requests"]

    def to_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "events": plan.events,
            "wallets": plan.wallets,
            "seed": plan.seed,
            "broker": plan.broker,
            "simulator": list(plan.simulator),
            "faults": [str(planned) for planned in self.inflicted],
            "seconds": round(self.seconds, 1),
            "scores_per_s": round(self.findings.counts["signed"] / self.seconds, 1),
            "repeated_model_calls": self.findings.counts["repeated_model_calls"],
            **self.findings.to_json(),
            "clean": self.clean,
        }


async def run(plan: RunPlan, say: Say = lambda text: None) -> RunResult:
    """Start a stack, submit, inflict, settle, check; everything is removed afterwards."""
    with RunningStack(
        plan.broker, model=plan.model, simulator=plan.simulator, environment=plan.settings()
    ) as stack:
        say(f"stack on {stack.bootstrap} is ready; submitting {plan.events} events")
        started = time.monotonic()
        work = list(submissions(plan.events, plan.wallets, plan.seed))
        asked = [item.request_id for item in work]
        told = 0

        def progress(ended: int) -> None:
            nonlocal told
            if ended >= told + max(1, plan.events // 10):
                told = ended
                say(f"{ended} of {plan.events} ended after {time.monotonic() - started:.0f} s")

        faults = asyncio.create_task(inflict(stack, plan.schedule))
        _, ended = await asyncio.gather(
            publish(stack.bootstrap, work, seconds=plan.spread_s, twice=plan.twice, seed=plan.seed),
            all_ended(stack.bootstrap, asked, patience_s=plan.patience_s, progress=progress),
        )
        seconds = time.monotonic() - started
        inflicted = await faults
        say(f"{ended} of {plan.events} ended in {seconds:.0f} s; settling")
        # A call that still runs for an already ended request may last its whole deadline.
        await quiet(stack, quiet_s=plan.deadline_s + 1.5, patience_s=_SETTLE_S)
        say("checking")
        findings = await check_run(stack.bootstrap, stack.stores, asked, stack.public_key)
        return RunResult(plan, findings, inflicted, seconds)
