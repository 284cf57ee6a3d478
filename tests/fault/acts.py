"""The faults there are: a function of the scene each, which tells whether it met its part."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from deploy.kafka.broker import Broker
from deploy.owned_process import OwnedProcess
from tests.fault.running_stack import SERVICES, RunningStack
from tests.fault.surroundings import BOOTSTRAP, Surroundings

BROKER, MODEL, AGGREGATOR, DISK, POSTGRES = (
    "broker", "simulator", "aggregator", "ledger disk", "postgres",
)  # fmt: skip
_LEAVE_S = 30.0
_JOIN_S = 3.0


@dataclass(frozen=True, slots=True)
class Scene:
    """A stack and what it stands on. `over` ends what lasts when a run is cut short."""

    stack: RunningStack
    around: Surroundings
    over: threading.Event = field(default_factory=threading.Event)

    def part(self, name: str) -> OwnedProcess:
        """A service, "simulator" or "broker"."""
        if name == BROKER and self.around.broker is not None:
            return self.around.broker.process
        return self.stack.part(name)

    def wait(self, seconds: float) -> None:
        self.over.wait(seconds)


# (scene, part, seconds that it lasts) -> whether it met its part
Act = Callable[[Scene, str, float], bool]


def kill_9(scene: Scene, part: str, lasts_s: float) -> bool:
    """SIGKILL; the stack starts the service again."""
    return scene.part(part).send(signal.SIGKILL)


def terminate(scene: Scene, part: str, lasts_s: float) -> bool:
    """SIGTERM: the service drains and ends, and is started again."""
    return scene.part(part).send(signal.SIGTERM)


def pause(scene: Scene, part: str, lasts_s: float) -> bool:
    """SIGSTOP for a while: the port is open and nobody answers."""
    met = scene.part(part).send(signal.SIGSTOP)
    scene.wait(lasts_s)
    return scene.part(part).send(signal.SIGCONT) and met


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
    scene.wait(lasts_s)
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
    broker = scene.around.broker
    if broker is None or not broker.running:
        return False
    end(broker)
    scene.wait(lasts_s)
    broker.start()
    return True


def cut_off(scene: Scene, part: str, lasts_s: float) -> bool:
    """Nothing comes through between the broker and the part (of the broker: everybody)."""
    with _cut(scene, part):
        scene.wait(lasts_s)
    return True


def replies_lost(scene: Scene, part: str, lasts_s: float) -> bool:
    """What is sent to the broker arrives and is done, and nobody hears of it."""
    with _cut(scene, part, requests=False):
        scene.wait(lasts_s)
    return True


def cut_off_and_replaced(scene: Scene, part: str, lasts_s: float) -> bool:
    """The service lives on behind a cut wire while another process of it, which reaches the
    broker, is given its partitions and its half-finished work; then the first comes back."""
    replica = scene.stack.replica(part, {BOOTSTRAP: scene.stack.bootstrap})
    if replica is None:
        return False
    scene.wait(_JOIN_S)
    with _cut(scene, part):
        scene.wait(lasts_s)
    scene.wait(_JOIN_S)
    met = replica.pid is not None
    replica.end(signal.SIGTERM, _LEAVE_S)
    return met


def _cut(scene: Scene, part: str, *, requests: bool = True) -> AbstractContextManager[None]:
    network, broker = scene.around.network, scene.around.broker
    assert network is not None
    assert broker is not None
    return network.cut([] if part == BROKER else [broker.doors[part]], requests=requests)


def no_aggregator(scene: Scene, part: str, lasts_s: float) -> bool:
    """Nothing listens at its address."""
    scene.around.aggregator.stop()
    scene.wait(lasts_s)
    scene.around.aggregator.start()
    return True


def full_disk(scene: Scene, part: str, lasts_s: float) -> bool:
    """The ledger's disk has no byte left for a while."""
    disk = scene.around.disk
    if disk is None:
        return False
    disk.fill()
    scene.wait(lasts_s)
    disk.clear()
    return True


def no_postgres(scene: Scene, part: str, lasts_s: float) -> bool:
    """kill -9 of the server under all stores, and its start on the same port and data."""
    server = scene.around.postgres
    if server is None:
        return False
    server.kill()
    scene.wait(lasts_s)
    server.start()
    return True


def silent_postgres(scene: Scene, part: str, lasts_s: float) -> bool:
    """The server under all stores answers nothing and closes nothing."""
    server = scene.around.postgres
    if server is None or not server.running:
        return False
    with server.silent():
        scene.wait(lasts_s)
    return True


ON_SERVICES: Mapping[str, Act] = {
    "kill -9": kill_9,
    "SIGTERM": terminate,
    "SIGSTOP": pause,
    "visit": visit,
    "visit and death": visit_and_die,
    "cut off": cut_off,
    "cut off and replaced": cut_off_and_replaced,
    "replies lost": replies_lost,
}
ON_BROKER: Mapping[str, Act] = {
    "kill -9 and start": kill_broker,
    "restart": restart_broker,
    "SIGSTOP": pause,
    "cut off": cut_off,
    "replies lost": replies_lost,
}
# What takes a network of the broker's own.
ON_THE_WIRE = frozenset(("cut off", "cut off and replaced", "replies lost"))
ON_PARTS: Mapping[str, Mapping[str, Act]] = {
    **dict.fromkeys(SERVICES, ON_SERVICES),
    BROKER: ON_BROKER,
    MODEL: {"SIGSTOP": pause},
    AGGREGATOR: {"absence": no_aggregator},
    DISK: {"no room": full_disk},
    POSTGRES: {"kill -9 and start": no_postgres, "silence": silent_postgres},
}
