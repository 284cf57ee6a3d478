"""A cut wire is one: silence in both directions or in one, for all or for one service, and
connections that live through it (issue 6: broker unreachable)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from assay_runtime.topic_admin import TopicSpec, ensure_topics
from deploy.kafka.broker import Broker
from deploy.kafka.cut_network import CutNetwork, possible
from deploy.kafka.probe import cluster_behind
from tests.fault.conftest import DOOR

TOPIC = "cut.test"
pytestmark = pytest.mark.skipif(
    not possible(), reason="cutting a wire needs root, iproute2 and util-linux"
)


async def end_of(consumer: AIOKafkaConsumer) -> int:
    place = TopicPartition(TOPIC, 0)
    async with asyncio.timeout(1):
        return int((await consumer.end_offsets([place]))[place])


@pytest.mark.kafka
@pytest.mark.fault
async def test_a_broker_behind_a_cut_wire(network: CutNetwork, broker: Broker) -> None:
    """During the cut no client reaches the broker, new or connected; afterwards both do. A door
    is cut alone. Where replies alone are lost the record is written, and once."""
    door = broker.doors[DOOR]

    def answers(port: int) -> bool:
        return cluster_behind(port, 0.5, address=network.address) is not None

    await ensure_topics(broker.bootstrap, [TopicSpec(TOPIC, 1, 1)])
    own = f"{network.address}:{door}"
    sender = AIOKafkaProducer(bootstrap_servers=own, enable_idempotence=True)
    async with sender, AIOKafkaConsumer(bootstrap_servers=broker.bootstrap) as reader:
        await sender.send_and_wait(TOPIC, b"before")
        assert await end_of(reader) == 1
        with network.cut():
            assert not answers(broker.port)
            assert not answers(door)
            with pytest.raises(TimeoutError):
                await end_of(reader)
            assert broker.running
        assert await end_of(reader) == 1

        with network.cut([door]):
            assert answers(broker.port)
            assert not answers(door)
            waiting = await sender.send(TOPIC, b"during")
            await asyncio.sleep(0.5)
            assert await end_of(reader) == 1
        await asyncio.wait_for(waiting, 10)
        assert await end_of(reader) == 2

        with network.cut([door], requests=False):
            waiting = await sender.send(TOPIC, b"unheard")
            await asyncio.sleep(0.5)
            assert await end_of(reader) == 3
            assert not waiting.done()
        await asyncio.wait_for(waiting, 10)
        assert await end_of(reader) == 3


@pytest.mark.kafka
@pytest.mark.fault
def test_cuts_that_overlap_end_apart(network: CutNetwork, broker: Broker) -> None:
    """A wider cut that begins later and ends first takes nothing of the other with it."""
    door = broker.doors[DOOR]

    def answering() -> list[bool]:
        return [
            cluster_behind(port, 0.5, address=network.address) is not None
            for port in (broker.port, door)
        ]

    with network.cut([door]):
        with network.cut(requests=False):
            assert answering() == [False, False]
        assert answering() == [True, False]
    assert answering() == [True, True]
    with ExitStack() as wide, network.cut([door], requests=False):
        wide.enter_context(network.cut())
        assert answering() == [False, False]
        wide.close()
        assert answering() == [True, False]
    assert answering() == [True, True]


def test_a_killed_run_leaves_no_interface(tmp_path: Path) -> None:
    """The kernel takes the network away with the program that made it."""
    script = (
        "from deploy.kafka.cut_network import CutNetwork\n"
        "network = CutNetwork(); network.open(); print(network.address, flush=True)\n"
        "import time; time.sleep(60)"
    )
    command = [sys.executable, "-c", script]
    place = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=place) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"10.")
        device = Path(f"/sys/class/net/assay{process.pid}n0")
        assert device.exists()
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while device.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not device.exists()


def test_two_networks_do_not_meet(network: CutNetwork) -> None:
    """Runs side by side have addresses and interfaces of their own, and remove what is theirs."""
    other = CutNetwork()
    other.open()
    try:
        assert other.address != network.address
        with network.cut(), other.cut([9092]):
            pass
    finally:
        other.close()
    with network.cut():
        pass
