"""The checker reads a real broker: what was planted there is found, repeats and all."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from deploy.kafka.broker import Broker
from deploy.kafka.catalogue_topics import create_missing
from tests.fault.checker import check
from tests.fault.seen import SIGNED
from tests.fault.synthetic_run import PUBLIC_KEY, SyntheticRun
from tests.fault.topic_reader import end_offsets, read_topics
from tests.fault.workload import submissions

PARTITIONS = 2


async def put(bootstrap: str, run: SyntheticRun) -> None:
    """The run's records on the broker, as they are, by key."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as sender:
        sent = [
            await sender.send(topic, value=r.value, key=r.key, headers=list(r.headers))
            for topic, records in run.records.items()
            for r in records
        ]
        await asyncio.gather(*sent)


@pytest.mark.kafka
async def test_a_planted_duplicate_and_a_planted_loss_on_kafka(broker: Broker) -> None:
    """X.2, X.6: read back from every partition to the end, both are found by name."""
    bootstrap = broker.bootstrap
    await create_missing(bootstrap, PARTITIONS)
    run = SyntheticRun()
    work = list(submissions(40, 12, seed=5))
    for item in work[:-1]:
        run.request(item)
    await put(bootstrap, run)
    log = await read_topics(bootstrap)
    assert log.gone == {}
    assert len({record.partition for record in log.of(SIGNED)}) == PARTITIONS
    assert check(log, None, run.asked, PUBLIC_KEY).clean

    planted = SyntheticRun()
    planted.request(work[-1], signed=False)
    validated = run.records["wallet.score.validated.v1"][7]
    planted.sign(validated, timestamp_ms=9_000)
    planted.repeat(run.records[SIGNED][3])
    await put(bootstrap, planted)
    findings = check(await read_topics(bootstrap), None, run.asked + planted.asked, PUBLIC_KEY)
    assert findings.violations["lost"] == [f"request {work[-1].request_id}"]
    assert findings.of("signed_twice") == 1
    assert work[7].request_id in findings.violations["signed_twice"][0]
    assert findings.counts[f"repeats {SIGNED}"] == 1
    ends = await end_offsets(bootstrap)
    assert sum(end for (topic, _), end in ends.items() if topic == SIGNED) == 41
