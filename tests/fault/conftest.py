"""One broker for the tests of this folder that only read it, write to it or cut its wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.kafka.broker import Broker
from deploy.kafka.cut_network import CutNetwork, possible
from tests.fault.test_fault_run import kafka_or_skip

DOOR = "signer"


@pytest.fixture(scope="session")
def network() -> Iterator[CutNetwork | None]:
    """None where this machine or account cannot make one."""
    if not possible():
        yield None
        return
    made = CutNetwork()
    made.open()
    yield made
    made.close()


@pytest.fixture(scope="session")
def broker(
    network: CutNetwork | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A real Kafka with a door, in the network where there is one."""
    kafka_or_skip()
    folder = tmp_path_factory.mktemp("kafka")
    made = Broker(folder, dies_with_parent=True, network=network, doors=[DOOR])
    made.start()
    yield made
    made.stop()
