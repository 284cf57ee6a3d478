"""What is done to a running stack, and when: a schedule drawn from a seed.

The schedule knows nothing of what faults do. Faults of one part follow each other, those of
different parts overlap.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.fault.acts import ON_PARTS, ON_THE_WIRE, Act, Scene
from tests.fault.running_stack import SERVICES

# Shortest and longest, in seconds; what is not named here happens at once. A stopped service is
# thrown out of its groups, whose session timeout is 6 s in the runs.
_LASTS: Mapping[str, tuple[float, float]] = {
    "SIGSTOP": (2.0, 9.0),
    "visit": (3.0, 8.0),
    "visit and death": (3.0, 8.0),
    "kill -9 and start": (0.0, 3.0),
    "restart": (0.0, 3.0),
    "cut off": (2.0, 15.0),
    "cut off and replaced": (7.0, 14.0),
    "replies lost": (2.0, 10.0),
    "absence": (1.0, 5.0),
    "no room": (1.0, 5.0),
    "silence": (3.0, 15.0),
}


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault at `at_s` seconds after the first submission, or when the part's one before is
    over; it lasts `lasts_s` seconds."""

    at_s: float
    fault: str
    part: str
    lasts_s: float = 0.0

    def __str__(self) -> str:
        lasts = f" for {self.lasts_s:.1f} s" if self.lasts_s else ""
        return f"{self.at_s:.1f} s: {self.fault} of {self.part}{lasts}"

    @property
    def act(self) -> Act:
        return ON_PARTS[self.part][self.fault]


@dataclass(frozen=True, slots=True)
class Inflicted:
    """A fault that met its part, from when to when (milliseconds since 1970)."""

    planned: Planned
    began_ms: int
    over_ms: int


def each_service_once(seed: int, within_s: float, fault: str = "kill -9") -> list[Planned]:
    """Every service meets the fault once, at times drawn from the seed, the end of the flow
    first: whoever is killed is then being fed by services that still run."""
    draw = random.Random(seed)
    order = ("signer", "validator", "scorer", "features", "ingest", "evidence")
    slot = within_s / len(order)
    return [Planned((n + draw.uniform(0.2, 0.8)) * slot, fault, p) for n, p in enumerate(order)]


def drawn(
    seed: int,
    within_s: float,
    count: int,
    *,
    parts: Collection[str],
    wire: bool = False,
    longest_s: float = 15.0,
) -> list[Planned]:
    """`count` faults of any kind at any time, drawn from the seed: one of each of `parts`, which
    stand beside the services, and the rest of the services'; `wire`: cut wires among them. None
    lasts longer than `longest_s`."""
    draw = random.Random(seed)
    met = draw.sample(sorted(parts), k=min(count, len(parts)))
    met += [draw.choice(SERVICES) for _ in range(count - len(met))]
    planned = []
    for part in met:
        fault = draw.choice(sorted(f for f in ON_PARTS[part] if wire or f not in ON_THE_WIRE))
        lasts_s = min(longest_s, round(draw.uniform(*_LASTS.get(fault, (0.0, 0.0))), 1))
        planned.append(Planned(draw.uniform(0.0, within_s), fault, part, lasts_s))
    return sorted(planned, key=lambda item: item.at_s)


async def inflict(scene: Scene, schedule: Sequence[Planned]) -> list[Inflicted]:
    """Do what the schedule says; returns the faults that met their part, in their order.

    Cancelled, it ends what lasts and waits for it, so that nothing stays cut or stopped.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def one(planned: Planned, pool: ThreadPoolExecutor) -> Inflicted | None:
        await asyncio.sleep(max(0.0, started + planned.at_s - loop.time()))
        async with turns[planned.part]:
            began = time.time_ns()
            met = await loop.run_in_executor(
                pool, planned.act, scene, planned.part, planned.lasts_s
            )
            over = time.time_ns()
        return Inflicted(planned, began // 1_000_000, over // 1_000_000) if met else None

    with ThreadPoolExecutor(max(1, len(schedule)), "fault") as pool:
        try:
            done = await asyncio.gather(*(one(planned, pool) for planned in schedule))
        except BaseException:
            scene.over.set()
            raise
    return [inflicted for inflicted in done if inflicted is not None]
