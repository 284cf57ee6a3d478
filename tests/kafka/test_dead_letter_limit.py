"""A bad deploy stops instead of burying everything (DESIGN §3), seen from outside."""

from __future__ import annotations

import json
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition

from assay.topics import catalogue, dead_letter_name
from deploy.dev.broker import EmbeddedBroker
from tests.e2e.processes import ServiceProcess
from tests.e2e.stacks import ACCEPTED
from tests.kafka import delivery_rig as rig

WINDOW = 200
DEAD = dead_letter_name(ACCEPTED, "features")


async def ends(bootstrap: str, topic: str) -> int:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        tps = [TopicPartition(topic, n) for n in range(2)]
        return sum((await consumer.end_offsets(tps)).values())
    finally:
        await consumer.stop()


async def test_a_service_that_buries_everything_ends(tmp_path: Path) -> None:
    """Half of the last 200 is too much: the process ends with 1 and says why, and what was over
    the limit still lies on its topic, uncommitted, for the deploy that can read it."""
    rubbish = [(b"k%d" % n, b"{}", [("ce_id", b"%d" % n)]) for n in range(1_000)]
    with EmbeddedBroker([(topic.name, 2) for topic in catalogue().on_broker()]) as broker:
        await rig.write(broker.bootstrap, ACCEPTED, rubbish)
        settings = {
            "ASSAY_KAFKA__BOOTSTRAP": broker.bootstrap,
            "ASSAY_KAFKA__FETCH_WAIT_MS": "10",
        }
        service = ServiceProcess("features", tmp_path, settings)
        try:
            assert service.exit_code(60) == 1
        finally:
            service.kill()
        said = [json.loads(line) for line in service.text.splitlines() if line.startswith("{")]
        (reason,) = [line["reason"] for line in said if line["event"] == "stopped_by_failure"]
        assert "the deploy is bad and not the messages" in reason
        buried = await ends(broker.bootstrap, DEAD)
        assert buried < WINDOW
