"""A publisher that uses Kafka's transactions is a publisher like any other (SPEC X.1)."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from assay_runtime.health import Health
from assay_runtime.pipeline import Runner
from deploy.kafka.broker import Broker
from tests.kafka import delivery_rig as rig


@pytest.mark.parametrize("engine", ["batch", "lane"])
async def test_what_ends_a_transaction_is_no_work_left_undone(
    kafka_broker: Broker, engine: str
) -> None:
    """Its mark takes an offset that holds no record: no consumer may be taken for stuck there, and
    what is committed passes it, or its removal by retention would be taken for a loss."""
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
    what = rig.pipeline(names, engine, rig.forwarding(names.sink))
    runner = Runner(rig.SERVICE, what, rig.kafka_section(bootstrap, stall_s=1), Health())
    await runner.start()
    try:
        with pytest.raises(TimeoutError):
            # It looks after 5 s of quiet, every 2 s.
            async with asyncio.timeout(12):
                await runner.run()
    finally:
        await runner.stop(1)
    assert await rig.committed(bootstrap, names) == await rig.ends(bootstrap, names.source)
    assert rig.distinct(await rig.read(bootstrap, names.sink)) == {b"%d" % n for n in range(8)}
