"""One Apache Kafka node (KRaft) on 127.0.0.1 that tests may start, kill, pause and restart."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from deploy.kafka import jars, server_properties
from deploy.kafka.cut_network import CutNetwork
from deploy.kafka.java import ensure_java
from deploy.kafka.probe import cluster_behind
from deploy.loopback_ports import free_port, is_free
from deploy.owned_process import OwnedProcess, ServerError

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_HEAP = "-Xms256m -Xmx512m -XX:+UseSerialGC"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a data directory keeps over restarts."""

    cluster: str
    port: int
    doors: dict[str, int] = field(default_factory=dict)


class PortTaken(ServerError):
    """The wanted port belongs to a program that this data directory did not start."""


class Broker:
    """A broker with its data under `data_dir`; several run side by side on different ports.

    Without `port` it keeps the port it had in this directory, or picks a free one. With
    `dies_with_parent` it is killed when the program that started it ends. KAFKA_HEAP_OPTS
    replaces the default heap of 512 MB. In a `network` it listens there and not on 127.0.0.1.
    `doors` names further listeners, each with a port of its own.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        *,
        dies_with_parent: bool = False,
        network: CutNetwork | None = None,
        doors: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir.resolve()
        self._network = network
        self._doors = doors
        self._wanted_port = port
        self._dies_with_parent = dies_with_parent
        self._identity = self.data_dir / "identity.json"
        self._properties = self.data_dir / "server.properties"
        self.process = OwnedProcess(self.data_dir / "broker.pid", self.data_dir / "broker.log")

    @property
    def port(self) -> int:
        """Port of the running broker, or of its last run."""
        return self._last().port

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients."""
        return f"{self._address}:{self.port}"

    @property
    def doors(self) -> dict[str, int]:
        """Ports of the further listeners, by name."""
        return self._last().doors

    @property
    def running(self) -> bool:
        """Whether our process lives; a paused one does."""
        return self.process.pid is not None

    @property
    def answering(self) -> bool:
        """Whether our broker, and no other on its port, serves clients."""
        known = self._known()
        if known is None:
            return False
        return cluster_behind(known.port, address=self._address) == known.cluster

    def start(self, patience_s: float = 60) -> None:
        """Start it, or find it running, and wait until it answers clients.

        One that fails to answer, or whose start is interrupted, is not left behind.
        """
        if self.running:
            self._await_ready(patience_s)
            return
        self._launch()
        try:
            self._await_ready(patience_s)
        except BaseException:
            self.kill()
            raise

    def stop(self, patience_s: float = 30) -> None:
        """Controlled shutdown; killed when it takes longer than `patience_s`."""
        self.process.end(signal.SIGTERM, patience_s)

    def kill(self) -> None:
        """kill -9; the data stay."""
        self.process.kill()

    def restart(self) -> None:
        """Stop and start on the same port and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: the port stays open and nobody answers."""
        if not self.process.send(signal.SIGSTOP):
            raise ServerError("the broker is not running, so it cannot be paused")

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        if not self.process.send(signal.SIGCONT):
            raise ServerError("the broker is not running, so it cannot be resumed")

    @property
    def _address(self) -> str:
        return self._network.address if self._network else "127.0.0.1"

    def _last(self) -> Identity:
        if (known := self._known()) is None:
            raise ServerError(f"the broker in {self.data_dir} was never started")
        return known

    def _known(self) -> Identity | None:
        try:
            return Identity(**json.loads(self._identity.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def _settle(self) -> Identity:
        """Choose ports, keep them for the next run and write server.properties."""
        known = self._known()
        port = self._wanted_port
        if port is not None and not is_free(port):
            raise PortTaken(f"port {port} on 127.0.0.1 is taken by another program")
        if port is None:
            port = known.port if known and is_free(known.port) else free_port()
        controller_port, *others = _free_ports(1 + len(self._doors), beside=port)
        doors = known.doors if known else dict(zip(self._doors, others, strict=True))
        identity = Identity(known.cluster if known else _new_cluster_id(), port, doors)
        properties = server_properties.render(
            port, controller_port, self.data_dir / "log", address=self._address, doors=doors
        )
        self._properties.write_text(properties, encoding="utf-8")
        self._identity.write_text(json.dumps(asdict(identity)) + "\n", encoding="utf-8")
        return identity

    def _format(self, java: list[str], cluster: str) -> None:
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", cluster]
        # Half a second of start-up is mostly compilation that pays off only in long runs.
        command = [java[0], "-XX:TieredStopAtLevel=1", *java[1:], *tool]
        done = subprocess.run(
            [*command, "-c", str(self._properties)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no output"]
            raise ServerError(f"Kafka could not format {self.data_dir}: {last[0]}")

    def _launch(self) -> None:
        libs, java = jars.fetch(), ensure_java(jars.BUILD)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        known = self._settle()
        kafka = [str(java), "-cp", f"{libs}/*", f"-Dlog4j2.configurationFile={_LOG_SETTINGS}"]
        if not (self.data_dir / "log" / "meta.properties").exists():
            self._format(kafka, known.cluster)
        heap = os.environ.get("KAFKA_HEAP_OPTS", _HEAP).split()
        enter = self._network.enter if self._network else ()
        self.process.launch(
            [*enter, kafka[0], *heap, *kafka[1:], "kafka.Kafka", str(self._properties)],
            parent_death=signal.SIGKILL if self._dies_with_parent else None,
        )

    def _await_ready(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while not self.answering:
            if not self.running:
                reason = self.process.last_words((" ERROR ", " FATAL ", "Exception"))
                raise ServerError(f"the broker ended while starting: {reason} ({self.process.log})")
            if time.monotonic() >= deadline:
                raise ServerError(
                    f"the broker does not answer after {patience_s:g} s ({self.process.log})"
                )
            time.sleep(0.05)


def _free_ports(count: int, *, beside: int) -> list[int]:
    """Different ones, and none of them `beside`."""
    found = {beside}
    while len(found) <= count:
        found.add(free_port())
    return sorted(found - {beside})


def _new_cluster_id() -> str:
    """22 characters; Kafka's tools take one that starts with a dash for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
