"""Asking for metadata while a partition has no leader."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.structs import PartitionMetadata

from assay_runtime import metadata_updates


class Client:
    def __init__(self, leader: int) -> None:
        self.cluster = ClusterMetadata()
        self.cluster._partitions["t"] = {0: PartitionMetadata("t", 0, leader, [1], [1], 0)}


@pytest.mark.parametrize(("leader", "paused"), [(-1, 1), (1, 0)])
async def test_it_pauses_while_a_leader_is_missed(
    monkeypatch: pytest.MonkeyPatch, leader: int, paused: int
) -> None:
    """The second of two updates, and none where every partition is led."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def update(*_: Any) -> bool:
        return True

    monkeypatch.setattr(metadata_updates.asyncio, "sleep", sleep)
    monkeypatch.setattr(metadata_updates, "_update", update)
    client = Client(leader)
    for _ in range(2):
        assert await metadata_updates._paced(client, client.cluster, None)
    assert sum(seconds > 0 for seconds in slept) == paused
    assert all(seconds <= metadata_updates._PAUSE_S for seconds in slept)


async def test_another_cluster_object_is_somebodys_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`fetch_all_metadata` is asked once and not in a loop."""

    async def update(*_: Any) -> bool:
        return False

    monkeypatch.setattr(metadata_updates, "_update", update)
    assert not await metadata_updates._paced(Client(-1), ClusterMetadata(), None)
