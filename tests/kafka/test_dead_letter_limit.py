"""A bad deploy stops instead of burying everything (DESIGN §3), seen from outside."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from assay.topics import catalogue, dead_letter_name
from deploy.dev.broker import EmbeddedBroker
from tests.e2e.processes import ServiceProcess
from tests.e2e.stacks import ACCEPTED
from tests.kafka import delivery_rig as rig

RECORDS, MOST = 1_000, 100
DEAD = dead_letter_name(ACCEPTED, "features")


async def ends(bootstrap: str, topic: str) -> int:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        tps = [TopicPartition(topic, n) for n in range(2)]
        return sum((await consumer.end_offsets(tps)).values())
    finally:
        await consumer.stop()


def service(bootstrap: str, folder: Path, **settings: str) -> ServiceProcess:
    """Features, which reads accepted wallet events in batches."""
    kafka = {"bootstrap": bootstrap, "fetch_wait_ms": "10", **settings}
    return ServiceProcess(
        "features", folder, {f"ASSAY_KAFKA__{key.upper()}": value for key, value in kafka.items()}
    )


def told(process: ServiceProcess, event: str) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in process.text.splitlines() if line.startswith("{"))
    return [line for line in lines if line.get("event") == event]


async def test_a_service_that_buries_everything_ends(tmp_path: Path) -> None:
    """Half of the last 200 is too much: the process ends with 1 and says why, and what was over
    the limit still lies on its topic, uncommitted, for the deploy that can read it. Starting it
    again and again is no way past; the setting that it names is, and the log tells what is kept."""
    rubbish = [(b"k%d" % n, b"{}", [("ce_id", b"%d" % n)]) for n in range(RECORDS)]
    with EmbeddedBroker([(topic.name, 2) for topic in catalogue().on_broker()]) as broker:
        await rig.write(broker.bootstrap, ACCEPTED, rubbish)
        logged = 0
        for _ in range(2):
            ending = service(broker.bootstrap, tmp_path)
            try:
                assert ending.exit_code(60) == 1
            finally:
                ending.kill()
            [reason] = [line["reason"] for line in told(ending, "stopped_by_failure")]
            assert "as envelope: CloudEvents headers missing" in reason
            assert f"{ACCEPTED}/" in reason
            assert "ASSAY_KAFKA__DEAD_LETTER_RATIO=0" in reason
            logged += len(told(ending, "record_dead_lettered"))
        buried = await ends(broker.bootstrap, DEAD)
        assert buried <= MOST
        assert logged == buried
        passing = service(broker.bootstrap, tmp_path, dead_letter_ratio="0")
        try:
            async with asyncio.timeout(60):
                while await ends(broker.bootstrap, DEAD) < RECORDS:
                    assert passing.process.poll() is None, passing.text
                    await asyncio.sleep(0.2)
        finally:
            passing.kill()
