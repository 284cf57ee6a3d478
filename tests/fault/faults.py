"""What is done to a running stack, and when: a schedule drawn from a seed.

A fault is a name and a function of the stack that tells whether it met its part; the schedule
knows nothing of what they do.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.fault.running_stack import SERVICES, RunningStack

Act = Callable[[RunningStack, str], bool]


def kill_9(stack: RunningStack, part: str) -> bool:
    """SIGKILL; the stack starts the service again."""
    return stack.part(part).send(signal.SIGKILL)


def terminate(stack: RunningStack, part: str) -> bool:
    """SIGTERM: the service drains and ends, and is started again."""
    return stack.part(part).send(signal.SIGTERM)


FAULTS: Mapping[str, Act] = {"kill -9": kill_9, "SIGTERM": terminate}


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault at `at_s` seconds after the first submission."""

    at_s: float
    fault: str
    part: str

    def __str__(self) -> str:
        return f"{self.at_s:.1f} s: {self.fault} {self.part}"


def each_service_once(
    seed: int, within_s: float, fault: str = "kill -9", parts: Sequence[str] = SERVICES
) -> list[Planned]:
    """Every part meets the fault once, in an order and at times drawn from the seed."""
    draw = random.Random(seed)
    order = draw.sample(list(parts), len(parts))
    slot = within_s / len(order)
    return [Planned((n + draw.uniform(0.2, 0.8)) * slot, fault, p) for n, p in enumerate(order)]


def drawn(seed: int, within_s: float, count: int, parts: Sequence[str] = SERVICES) -> list[Planned]:
    """`count` faults of any kind, on any part, at any time, drawn from the seed."""
    draw = random.Random(seed)
    kinds = sorted(FAULTS)
    return [
        Planned(draw.uniform(0.0, within_s), draw.choice(kinds), draw.choice(list(parts)))
        for _ in range(count)
    ]


async def inflict(stack: RunningStack, schedule: Sequence[Planned]) -> list[Planned]:
    """Do what the schedule says, in its order; returns the faults that met their part."""
    met = []
    loop = asyncio.get_running_loop()
    started = loop.time()
    for planned in sorted(schedule, key=lambda item: item.at_s):
        await asyncio.sleep(max(0.0, started + planned.at_s - loop.time()))
        if FAULTS[planned.fault](stack, planned.part):
            met.append(planned)
    return met
