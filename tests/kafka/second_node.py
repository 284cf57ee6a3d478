"""A second node for a broker's cluster: what it alone holds has no leader while it is away."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from deploy.kafka import jars
from deploy.kafka.broker import Broker
from deploy.kafka.java import ensure_java
from deploy.loopback_ports import free_port
from deploy.owned_process import OwnedProcess

_NODE = 2


class SecondNode:
    """Broker 2 beside broker and controller 1, on a port and with data of its own."""

    def __init__(self, first: Broker, data: Path) -> None:
        data.mkdir()
        self._first = first
        self._properties = data / "server.properties"
        self._process = OwnedProcess(data / "broker.pid", data / "broker.log")
        lines = (first.data_dir / "server.properties").read_text(encoding="utf-8").splitlines()
        listener = f"PLAINTEXT://127.0.0.1:{free_port()}"
        changes = {
            "process.roles": "broker",
            "node.id": str(_NODE),
            "listeners": listener,
            "advertised.listeners": listener,
            "log.dirs": str(data / "log"),
        }
        settings = {**dict(line.split("=", 1) for line in lines), **changes}
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._properties.write_text(text, encoding="utf-8")
        java, libs = str(ensure_java(jars.BUILD)), jars.fetch()
        self._command = [java, "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{libs}/*"]
        cluster = json.loads((first.data_dir / "identity.json").read_text())["cluster"]
        formatting = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", self._properties]
        subprocess.run([*self._command, *formatting], check=True, capture_output=True)

    async def start(self) -> None:
        """Returns once the cluster counts it."""
        self._process.launch(
            [*self._command, "kafka.Kafka", str(self._properties)], parent_death=signal.SIGKILL
        )
        await self._counted(2)

    async def kill(self) -> None:
        """kill -9; returns once the cluster has missed it."""
        self._process.kill()
        await self._counted(1)

    async def create(self, topic: str, leaders: list[int]) -> None:
        """A topic whose partitions are each on the one node named."""
        placed = {partition: [node] for partition, node in enumerate(leaders)}
        admin = AIOKafkaAdminClient(bootstrap_servers=self._first.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, -1, -1, replica_assignments=placed)])
        finally:
            await admin.close()

    async def _counted(self, nodes: int) -> None:
        async with asyncio.timeout(60):
            while await self._nodes() != nodes:
                await asyncio.sleep(0.1)

    async def _nodes(self) -> int:
        """0 where the client asks the one that has just gone."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self._first.bootstrap)
        try:
            await admin.start()
            return len((await admin.describe_cluster())["brokers"])
        except KafkaError:
            return 0
        finally:
            await admin.close()
