"""One run: a stack, a workload, faults, and then the checker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.topics import catalogue
from tests.fault.acts import BROKER, Scene
from tests.fault.checker import check
from tests.fault.commit_reader import read_commits, steps_back
from tests.fault.faults import Inflicted, Planned, inflict
from tests.fault.findings import Findings
from tests.fault.lineage_rules import check_repeated_calls
from tests.fault.recovery import recovery_s
from tests.fault.running_stack import RunningStack
from tests.fault.settling import all_ended, quiet
from tests.fault.stores import read_stores
from tests.fault.surroundings import surroundings
from tests.fault.topic_reader import end_offsets, read_topics
from tests.fault.workload import Submission, publish, submissions

Say = Callable[[str], None]
MISBEHAVING = ("--fault-rate=0.3", "--hang-rate=0.02")
_SETTLE_S = 120.0
# A scorer that ends, stops or loses its partitions; a broker that does not take its answers.
_LOSES_CALLS = ("scorer", BROKER)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run submits and under which conditions; times in seconds.

    `spread_s` spreads the submissions over time (0: as fast as they go). Shares of them are
    submitted `twice`, come `late`, or are `bare` of wallet data. `deadline_s` and `slots` are the
    scorer's. `stores` is a kind of surroundings.py; `wire`: the broker's can be cut.
    """

    events: int
    wallets: int
    seed: int
    broker: str
    model: str = "simulator"
    simulator: tuple[str, ...] = MISBEHAVING
    stores: str = "files"
    wire: bool = False
    spread_s: float = 0.0
    twice: float = 0.01
    late: float = 0.0
    bare: float = 0.0
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

    def work(self) -> list[Submission]:
        return list(submissions(self.events, self.wallets, self.seed, bare=self.bare))

    def to_json(self) -> dict[str, Any]:
        names = ("events", "wallets", "seed", "broker", "stores", "wire")
        return {**{name: getattr(self, name) for name in names}, "simulator": list(self.simulator)}

    def broken_down(self, error: Exception) -> dict[str, Any]:
        """In place of a result: nothing is known of such a run, and it is not clean."""
        return {**self.to_json(), "faults": [], "clean": False, "error": repr(error)}


@dataclass(frozen=True, slots=True)
class RunResult:
    """What the checker found, which faults met their part with the seconds until it worked again
    (None: nothing was left to do, or it cannot be seen), and the seconds from the first
    submission to the last ending."""

    plan: RunPlan
    findings: Findings
    inflicted: Sequence[tuple[Inflicted, float | None]]
    seconds: float

    @property
    def clean(self) -> bool:
        """No violation, and every request has its signed score: nothing ended without one."""
        counts = self.findings.counts
        return self.findings.clean and counts["signed"] == counts["requests"]

    def to_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            **plan.to_json(),
            "faults": [
                {"fault": str(met.planned), "recovery_s": recovery}
                for met, recovery in self.inflicted
            ],
            "faults_missed": len(plan.schedule) - len(self.inflicted),
            "seconds": round(self.seconds, 1),
            "scores_per_s": round(self.findings.counts["signed"] / self.seconds, 1),
            "repeated_model_calls": self.findings.counts["repeated_model_calls"],
            **self.findings.to_json(),
            "clean": self.clean,
        }


async def run(
    plan: RunPlan, say: Say = lambda text: None, *, data: Path | None = None
) -> RunResult:
    """Start a stack, submit, inflict, settle, check. Everything is removed afterwards, except
    what the stack keeps in `data` where that is given."""
    kafka = plan.broker == "kafka"
    with (
        surroundings(plan.stores, kafka=kafka, wire=plan.wire, data=data) as around,
        RunningStack(
            around.broker.bootstrap if around.broker else plan.broker,
            model=plan.model,
            simulator=plan.simulator,
            environment=plan.settings(),
            settings=around.settings,
            aggregator=around.aggregator.template,
            data=data,
        ) as stack,
    ):
        say(f"stack on {stack.bootstrap} is ready; submitting {plan.events} events")
        stores = around.stores(stack.data / "stack")
        started = time.monotonic()
        work = plan.work()
        asked = [item.request_id for item in work]
        told = 0

        def progress(ended: int) -> None:
            nonlocal told
            if ended >= told + max(1, plan.events // 10):
                told = ended
                say(f"{ended} of {plan.events} ended after {time.monotonic() - started:.0f} s")

        publishing = publish(
            stack.bootstrap, work, seconds=plan.spread_s, twice=plan.twice, late=plan.late,
            seed=plan.seed,
        )  # fmt: skip
        async with asyncio.TaskGroup() as group:
            faults = group.create_task(inflict(Scene(stack, around), plan.schedule))
            group.create_task(publishing)
            ending = group.create_task(
                all_ended(stack.bootstrap, asked, patience_s=plan.patience_s, progress=progress)
            )
            ended = await ending
            seconds = time.monotonic() - started
        inflicted = faults.result()
        say(f"{ended} of {plan.events} ended in {seconds:.0f} s; settling")
        # A call that still runs for an already ended request may last its whole deadline.
        quiet_s = plan.deadline_s + 1.5
        await quiet(stack, quiet_s=quiet_s, patience_s=_SETTLE_S, evidence=stores.evidence)
        say("checking")
        log = await read_topics(stack.bootstrap)
        findings = check(log, await read_stores(stores), asked, stack.public_key)
        check_repeated_calls(plan.slots * lost_calls(inflicted), findings)
        if around.broker:
            back = steps_back(await read_commits(stack.bootstrap))
            findings.counts["commits_back"] = back.total()
            findings.counts.update({f"commits_back {group}": n for group, n in back.items()})
        tiers = [topic.name for topic in catalogue().retries()]
        findings.counts["postponed"] = sum((await end_offsets(stack.bootstrap, tiers)).values())
        met = [(fault, recovery_s(log, fault)) for fault in inflicted]
        return RunResult(plan, findings, met, seconds)


def lost_calls(inflicted: Sequence[Inflicted]) -> int:
    """Faults at which calls in flight, up to one per slot, may have been lost."""
    return sum(met.planned.part in _LOSES_CALLS for met in inflicted)
