"""What is done to a running stack, and when: a schedule drawn from a seed.

A fault is a name and a function of the scene that tells whether it met its part; the schedule
knows nothing of what they do. Faults of one part follow each other, those of different parts
overlap.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from deploy.kafka.broker import Broker
from tests.fault.running_stack import SERVICES, RunningStack
from tests.fault.surroundings import Surroundings

BROKER, MODEL, AGGREGATOR, DISK, POSTGRES = (
    "broker", "simulator", "aggregator", "ledger disk", "postgres",
)  # fmt: skip
_LEAVE_S = 30.0


@dataclass(frozen=True, slots=True)
class Scene:
    """A stack and what it stands on."""

    stack: RunningStack
    around: Surroundings


# (scene, part, seconds that it lasts) -> whether it met its part
Act = Callable[[Scene, str, float], bool]


def kill_9(scene: Scene, part: str, lasts_s: float) -> bool:
    """SIGKILL; the stack starts the service again."""
    return scene.stack.part(part).send(signal.SIGKILL)


def terminate(scene: Scene, part: str, lasts_s: float) -> bool:
    """SIGTERM: the service drains and ends, and is started again."""
    return scene.stack.part(part).send(signal.SIGTERM)


def pause(scene: Scene, part: str, lasts_s: float) -> bool:
    """SIGSTOP for a while: the port is open and nobody answers."""
    met = scene.stack.part(part).send(signal.SIGSTOP)
    time.sleep(lasts_s)
    return scene.stack.part(part).send(signal.SIGCONT) and met


def visit(scene: Scene, part: str, lasts_s: float) -> bool:
    """A second process of the service joins, and leaves in order."""
    return _joined(scene, part, lasts_s, kill=False)


def visit_and_die(scene: Scene, part: str, lasts_s: float) -> bool:
    """A second process of the service joins, and is killed in the middle of its work."""
    return _joined(scene, part, lasts_s, kill=True)


def _joined(scene: Scene, part: str, lasts_s: float, *, kill: bool) -> bool:
    replica = scene.stack.replica(part)
    if replica is None:
        return False
    time.sleep(lasts_s)
    met = replica.pid is not None
    if kill:
        replica.kill()
    else:
        replica.end(signal.SIGTERM, _LEAVE_S)
    return met


def kill_broker(scene: Scene, part: str, lasts_s: float) -> bool:
    """kill -9 of a real broker, and after a while its start on the same port and data."""
    return _broker_back(scene, Broker.kill, lasts_s)


def restart_broker(scene: Scene, part: str, lasts_s: float) -> bool:
    """A controlled shutdown of a real broker, and its start."""
    return _broker_back(scene, Broker.stop, lasts_s)


def _broker_back(scene: Scene, end: Callable[[Broker], None], lasts_s: float) -> bool:
    broker = Broker(scene.stack.part(BROKER).record.parent)
    if not broker.running:
        return False
    end(broker)
    time.sleep(lasts_s)
    broker.start()
    return True


def no_aggregator(scene: Scene, part: str, lasts_s: float) -> bool:
    """Nothing listens at its address."""
    scene.around.aggregator.stop()
    time.sleep(lasts_s)
    scene.around.aggregator.start()
    return True


def full_disk(scene: Scene, part: str, lasts_s: float) -> bool:
    """The ledger's disk has no byte left for a while."""
    disk = scene.around.disk
    if disk is None:
        return False
    disk.fill()
    time.sleep(lasts_s)
    disk.clear()
    return True


def no_postgres(scene: Scene, part: str, lasts_s: float) -> bool:
    """kill -9 of the server under all stores, and its start on the same port and data."""
    server = scene.around.postgres
    if server is None:
        return False
    server.kill()
    time.sleep(lasts_s)
    server.start()
    return True


ON_SERVICES: Mapping[str, Act] = {
    "kill -9": kill_9,
    "SIGTERM": terminate,
    "SIGSTOP": pause,
    "visit": visit,
    "visit and death": visit_and_die,
}
ON_BROKER: Mapping[str, Act] = {
    "kill -9 and start": kill_broker,
    "restart": restart_broker,
    "SIGSTOP": pause,
}
ON_PARTS: Mapping[str, Mapping[str, Act]] = {
    **dict.fromkeys(SERVICES, ON_SERVICES),
    BROKER: ON_BROKER,
    MODEL: {"SIGSTOP": pause},
    AGGREGATOR: {"absence": no_aggregator},
    DISK: {"no room": full_disk},
    POSTGRES: {"kill -9 and start": no_postgres},
}
# Shortest and longest, in seconds; what is not named here happens at once. A stopped service is
# thrown out of its groups, whose session timeout is 6 s in the runs.
_LASTS: Mapping[str, tuple[float, float]] = {
    "SIGSTOP": (2.0, 9.0),
    "visit": (3.0, 8.0),
    "visit and death": (3.0, 8.0),
    "kill -9 and start": (0.0, 3.0),
    "restart": (0.0, 3.0),
    "absence": (1.0, 5.0),
    "no room": (1.0, 5.0),
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


def drawn(seed: int, within_s: float, count: int, *, parts: Collection[str]) -> list[Planned]:
    """`count` faults of any kind at any time, drawn from the seed: one of each of `parts`, which
    stand beside the services, and the rest of the services'."""
    draw = random.Random(seed)
    met = draw.sample(sorted(parts), k=min(count, len(parts)))
    met += [draw.choice(SERVICES) for _ in range(count - len(met))]
    planned = []
    for part in met:
        fault = draw.choice(sorted(ON_PARTS[part]))
        lasts_s = round(draw.uniform(*_LASTS.get(fault, (0.0, 0.0))), 1)
        planned.append(Planned(draw.uniform(0.0, within_s), fault, part, lasts_s))
    return sorted(planned, key=lambda item: item.at_s)


async def inflict(scene: Scene, schedule: Sequence[Planned]) -> list[Inflicted]:
    """Do what the schedule says; returns the faults that met their part, in their order."""
    started = asyncio.get_running_loop().time()
    turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def one(planned: Planned) -> Inflicted | None:
        wait_s = started + planned.at_s - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, wait_s))
        async with turns[planned.part]:
            began = time.time_ns()
            met = await asyncio.to_thread(planned.act, scene, planned.part, planned.lasts_s)
            over = time.time_ns()
        return Inflicted(planned, began // 1_000_000, over // 1_000_000) if met else None

    done = await asyncio.gather(*(one(planned) for planned in schedule))
    return [inflicted for inflicted in done if inflicted is not None]
