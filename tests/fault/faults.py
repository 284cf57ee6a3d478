"""What is done to a running stack, and when: a schedule drawn from a seed.

A fault is a name and a function of the stack that tells whether it met its part; the schedule
knows nothing of what they do.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deploy.kafka.broker import Broker
from tests.fault.running_stack import SERVICES, RunningStack

Act = Callable[[RunningStack, str], bool]
BROKER = "broker"
# Longer than the session timeout of the runs: a paused service is thrown out of its groups.
_PAUSE_S = 8.0


def kill_9(stack: RunningStack, part: str) -> bool:
    """SIGKILL; the stack starts the service again."""
    return stack.part(part).send(signal.SIGKILL)


def terminate(stack: RunningStack, part: str) -> bool:
    """SIGTERM: the service drains and ends, and is started again."""
    return stack.part(part).send(signal.SIGTERM)


def restart_broker(stack: RunningStack, part: str) -> bool:
    """kill -9 of a real broker, and its start on the same port and data."""
    broker = Broker(stack.part(part).record.parent)
    if not broker.running:
        return False
    broker.kill()
    broker.start()
    return True


def pause(stack: RunningStack, part: str) -> bool:
    """SIGSTOP for eight seconds: the port is open and nobody answers."""
    met = stack.part(part).send(signal.SIGSTOP)
    time.sleep(_PAUSE_S)
    return stack.part(part).send(signal.SIGCONT) and met


ON_SERVICES: Mapping[str, Act] = {"kill -9": kill_9, "SIGTERM": terminate, "SIGSTOP": pause}
ON_BROKER: Mapping[str, Act] = {"kill -9 and start of": restart_broker, "SIGSTOP": pause}


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault at `at_s` seconds after the first submission, or when the one before is over."""

    at_s: float
    fault: str
    part: str

    def __str__(self) -> str:
        return f"{self.at_s:.1f} s: {self.fault} {self.part}"

    @property
    def act(self) -> Act:
        return (ON_BROKER if self.part == BROKER else ON_SERVICES)[self.fault]


def each_service_once(seed: int, within_s: float, fault: str = "kill -9") -> list[Planned]:
    """Every service meets the fault once, at times drawn from the seed, the end of the flow
    first: whoever is killed is then being fed by services that still run."""
    draw = random.Random(seed)
    order = ("signer", "validator", "scorer", "features", "ingest", "evidence")
    slot = within_s / len(order)
    return [Planned((n + draw.uniform(0.2, 0.8)) * slot, fault, p) for n, p in enumerate(order)]


def drawn(seed: int, within_s: float, count: int, *, broker: bool) -> list[Planned]:
    """`count` faults of any kind, on any part, at any time, drawn from the seed.

    `broker` says whether the broker is one that can be met.
    """
    draw = random.Random(seed)
    possible = [(fault, part) for part in SERVICES for fault in sorted(ON_SERVICES)]
    if broker:
        possible += [(fault, BROKER) for fault in sorted(ON_BROKER)]
    planned = [Planned(draw.uniform(0.0, within_s), *draw.choice(possible)) for _ in range(count)]
    return sorted(planned, key=lambda item: item.at_s)


async def inflict(stack: RunningStack, schedule: Sequence[Planned]) -> list[Planned]:
    """Do what the schedule says, in its order; returns the faults that met their part."""
    met = []
    loop = asyncio.get_running_loop()
    started = loop.time()
    for planned in schedule:
        await asyncio.sleep(max(0.0, started + planned.at_s - loop.time()))
        if await asyncio.to_thread(planned.act, stack, planned.part):
            met.append(planned)
    return met
