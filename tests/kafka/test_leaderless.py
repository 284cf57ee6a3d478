"""A partition whose only broker is away is named; where it is read from, the others go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.kafka.broker import Broker
from tests.kafka import delivery_rig as rig
from tests.kafka.second_node import SecondNode

AWAY = 3


@pytest.fixture
async def nodes(
    disposable_broker: Broker, tmp_path: Path
) -> AsyncIterator[tuple[Broker, SecondNode]]:
    """A broker and a second node; groups are kept by the first."""
    await rig.create(disposable_broker.bootstrap, names := rig.Names())
    await rig.committed(disposable_broker.bootstrap, names)
    second = SecondNode(disposable_broker, tmp_path / "two")
    try:
        await second.start()
        yield disposable_broker, second
    finally:
        await second.kill()


@pytest.mark.parametrize("engine", ["batch", "lane"])
async def test_the_others_are_read(nodes: tuple[Broker, SecondNode], engine: str) -> None:
    """From the start on; readiness names what is missing, which is read once it is back. So it
    does of a leader that is lost later."""
    broker, second = nodes
    names = rig.Names()
    for topic, leaders in ((names.source, [1, 1, 1, 2]), (names.sink, [1] * 4), (names.dead, [1])):
        await second.create(topic, leaders)
    await rig.write(broker.bootstrap, names.source, rig.rows(200, keys=40))
    there = await rig.ends(broker.bootstrap, names.source)
    assert all(there.values())
    await second.kill()
    what = rig.pipeline(names, engine, rig.forwarding(names.sink))
    async with rig.running(broker.bootstrap, what) as now:
        reachable = sum(count for number, count in there.items() if number != AWAY)

        async def out(count: int) -> bool:
            return sum((await rig.ends(broker.bootstrap, names.sink)).values()) >= count

        await rig.until(lambda: out(reachable))
        assert f"no leader for {names.source}/{AWAY}" in str(await now.health.problems())
        await second.start()
        await rig.until(lambda: out(200))
        await rig.until(lambda: ready(now))
        await second.kill()
        await rig.until(lambda: named(now, f"no leader for {names.source}/{AWAY}"))
        await second.start()
        await rig.until(lambda: ready(now))
    outputs = await rig.read(broker.bootstrap, names.sink)
    assert rig.distinct(outputs) == {b"%d" % n for n in range(200)}
    assert rig.out_of_order(outputs) == []


@pytest.mark.parametrize("engine", ["batch", "lane"])
async def test_an_output_that_cannot_be_written_is_named(
    nodes: tuple[Broker, SecondNode], engine: str
) -> None:
    """All wait for it, and go on once it is back."""
    broker, second = nodes
    names = rig.Names()
    for topic, leaders in ((names.source, [1] * 4), (names.sink, [1, 1, 1, 2]), (names.dead, [1])):
        await second.create(topic, leaders)
    await rig.write(broker.bootstrap, names.source, rig.rows(200, keys=40))
    await second.kill()
    what = rig.pipeline(names, engine, rig.forwarding(names.sink))
    async with rig.running(broker.bootstrap, what) as now:
        await rig.until(lambda: named(now, f"not confirmed for more than 5 s: {names.sink}/{AWAY}"))
        await second.start()
        await rig.until(lambda: ready(now))
        await rig.until(lambda: done(broker, names))
    outputs = await rig.read(broker.bootstrap, names.sink)
    assert rig.distinct(outputs) == {b"%d" % n for n in range(200)}
    assert rig.out_of_order(outputs) == []


async def done(broker: Broker, names: rig.Names) -> bool:
    return await rig.done(broker.bootstrap, names) == 200


async def named(now: rig.Running, problem: str) -> bool:
    return problem in str(await now.health.problems())


async def ready(now: rig.Running) -> bool:
    return not await now.health.problems()
