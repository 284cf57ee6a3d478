"""A publisher that uses Kafka's transactions is a publisher like any other (SPEC X.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest
from aiokafka import AIOKafkaProducer

from assay_runtime.failures import Pause
from assay_runtime.health import Health
from assay_runtime.pipeline import Runner
from assay_runtime.records import Position
from deploy.kafka.broker import Broker
from tests.kafka import delivery_rig as rig


class _Store:
    """A sink's, away at first."""

    def __init__(self) -> None:
        self.kept: dict[Position, int] = {}
        self.away = True

    async def positions(self, wanted: Collection[Position]) -> dict[Position, int]:
        return dict.fromkeys(wanted, 0) | self.kept

    async def pass_over(self, positions: Mapping[Position, int]) -> None:
        if self.away:
            self.away = False
            raise Pause("store", "away")
        self.kept.update(positions)


@pytest.mark.parametrize("engine", ["batch", "lane", "sink"])
async def test_what_ends_a_transaction_is_no_work_left_undone(
    kafka_broker: Broker, engine: str
) -> None:
    """Its mark takes an offset that holds no record: no consumer may be taken for stuck there, and
    what is committed or stored passes it, or its removal by retention would be taken for a loss."""
    names, bootstrap = rig.Names(), kafka_broker.bootstrap
    await rig.create(bootstrap, names)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=names.source)
    await producer.start()
    try:
        async with producer.transaction():
            for key, value, headers in rig.rows(8, keys=8):
                await producer.send(names.source, value, key=key, headers=list(headers))
    finally:
        await producer.stop()
    store = _Store() if engine == "sink" else None
    what = rig.pipeline(
        names,
        "batch" if store else engine,
        rig.forwarding(names.sink),
        stored_positions=store,
    )
    runner = Runner(rig.SERVICE, what, rig.kafka_section(bootstrap, stall_s=1), Health())
    await runner.start()
    try:
        with pytest.raises(TimeoutError):
            # It looks after 5 s of quiet, every 2 s; where the store was away, as long again later.
            async with asyncio.timeout(20 if store else 12):
                await runner.run()
    finally:
        await runner.stop(1)
    ends = await rig.ends(bootstrap, names.source)
    assert await rig.committed(bootstrap, names) == ends
    if store:
        assert store.kept == {Position(names.source, p): end for p, end in ends.items()}
    assert rig.distinct(await rig.read(bootstrap, names.sink)) == {b"%d" % n for n in range(8)}
