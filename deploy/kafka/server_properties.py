"""server.properties of a single KRaft node (research/kafka-runtime.md §6)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

MAX_MESSAGE_BYTES = 8 * 1024 * 1024

SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # One node holds one copy of everything.
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    # Topics come from schemas/topics.toml and from nowhere else.
    "auto.create.topics.enable": "false",
    # Wallet records pass 4 MiB; what is written must also be readable by a replica.
    "message.max.bytes": str(MAX_MESSAGE_BYTES),
    "replica.fetch.max.bytes": str(MAX_MESSAGE_BYTES),
    # As long as dead letters: a group must not be forgotten before what it has not read.
    "offsets.retention.minutes": "43200",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # A killed broker cannot register again before its old session has ended (9 s by default).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""Settings that do not depend on where the node runs; compose.yaml has the same."""


def render(
    port: int,
    controller_port: int,
    data: Path,
    *,
    address: str = "127.0.0.1",
    doors: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """The file's text for a node that listens on one address only; `doors` are further listeners
    by name, and whoever comes through one is sent on through the same."""
    ports = {"PLAINTEXT": port, **{name.upper(): door for name, door in doors.items()}}
    open_ = [f"{name}://{address}:{number}" for name, number in ports.items()]
    where = {
        "listeners": ",".join([*open_, f"CONTROLLER://127.0.0.1:{controller_port}"]),
        "advertised.listeners": ",".join(open_),
        "listener.security.protocol.map": ",".join(
            f"{name}:PLAINTEXT" for name in [*ports, "CONTROLLER"]
        ),
        "controller.quorum.voters": f"{SETTINGS['node.id']}@127.0.0.1:{controller_port}",
        "log.dirs": str(data),
    }
    return "".join(f"{key}={value}\n" for key, value in {**SETTINGS, **where}.items())
