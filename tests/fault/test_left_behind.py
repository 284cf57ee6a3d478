"""Retention that outruns a consumer: the service stops and says so, and nothing but what was
removed is lost (DESIGN §3, SPEC X.6)."""

from __future__ import annotations

import asyncio
import signal

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from deploy.owned_process import OwnedProcess
from tests.fault.checker import check
from tests.fault.lineage_rules import ACCEPTED
from tests.fault.running_stack import RunningStack
from tests.fault.settling import all_ended, evidence_complete, quiet
from tests.fault.stores import read_stores
from tests.fault.surroundings import surroundings
from tests.fault.test_fault_run import SOON_GONE, kafka_or_skip
from tests.fault.topic_reader import TopicLog, read_topics
from tests.fault.workload import Submission, publish, submissions
from tests.kafka.delivery_rig import delete_before, until

GROUP = "assay.features"
EVENTS = 60


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.kafka
async def test_a_service_left_behind_stops_aloud_and_loses_only_what_is_gone() -> None:
    """Half of what waits for features is removed. It ends with the reason, as often as it is
    started again, until it is told to go on without; then everything else is signed, once."""
    kafka_or_skip()
    work = list(submissions(2 * EVENTS, 30, seed=21))
    with (
        surroundings("files") as around,
        RunningStack(
            "kafka",
            environment=SOON_GONE,
            settings={"ASSAY_KAFKA__OVERRUN": "stop"},
            aggregator=around.aggregator.template,
        ) as stack,
    ):
        await publish(stack.bootstrap, work[:EVENTS])
        assert await _ended(stack, work[:EVENTS]) == EVENTS
        stack.part("features").send(signal.SIGSTOP)
        await publish(stack.bootstrap, work[EVENTS:])
        await until(lambda: _accepted(stack, 2 * EVENTS))
        await evidence_complete(stack, patience_s=60)
        before = await read_topics(stack.bootstrap)
        gone = await _remove_half(stack, before)
        assert 0 < len(gone) < EVENTS
        stack.part("features").send(signal.SIGCONT)
        await until(lambda: _said(stack).count("removed by retention") >= 2, 45)
        assert "features ended" in _said(stack), stack.said()

        replica = await _told_to_go_on(stack)
        try:
            asked = [item.request_id for item in work]
            left = [request for request in asked if request not in gone]
            assert await all_ended(stack.bootstrap, left, patience_s=30) == len(left)
            await quiet(stack, quiet_s=2, patience_s=60)
            log = (await read_topics(stack.bootstrap)).with_earlier(before)
            stores = await read_stores(stack.stores)
        finally:
            replica.end(signal.SIGTERM, 30)
        found = check(log, stores, asked, stack.public_key, declared=gone)
        assert found.violations == {}
        # What was on its way to the stopped process may come through all the same.
        lost = found.counts["declared_lost"]
        assert 0 < lost <= len(gone)
        assert found.counts["signed"] == len(asked) - lost
        assert check(log, stores, asked, stack.public_key).of("lost") == lost


def _said(stack: RunningStack) -> str:
    """What the stack wrote, its lines joined: they are cut to a terminal's width."""
    return " ".join(stack.said().split())


async def _told_to_go_on(stack: RunningStack) -> OwnedProcess:
    """What an operator starts who accepts the loss; the other goes on ending and coming back."""
    found: list[OwnedProcess] = []

    def started() -> bool:
        # Between two starts there is no process to take the settings from.
        replica = stack.replica("features", {"ASSAY_KAFKA__OVERRUN": "continue"})
        found.extend([replica] if replica else [])
        return bool(found)

    await until(started)
    return found[0]


async def _ended(stack: RunningStack, work: list[Submission]) -> int:
    asked = [item.request_id for item in work]
    return await all_ended(stack.bootstrap, asked, patience_s=30)


async def _accepted(stack: RunningStack, count: int) -> bool:
    return len((await read_topics(stack.bootstrap)).of(ACCEPTED)) >= count


async def _remove_half(stack: RunningStack, log: TopicLog) -> set[str]:
    """Remove what lies lower of the accepted events that features has not read; their requests."""
    read = await _committed(stack, {record.partition for record in log.of(ACCEPTED)})
    low: dict[int, int] = {}
    for partition, at in read.items():
        end = max(r.offset for r in log.of(ACCEPTED) if r.partition == partition) + 1
        low[partition] = at + (end - at + 1) // 2
    await delete_before(stack.bootstrap, ACCEPTED, low)
    await asyncio.sleep(0)
    return {
        record.request_id
        for record in log.of(ACCEPTED)
        if read[record.partition] <= record.offset < low[record.partition]
    }


async def _committed(stack: RunningStack, partitions: set[int]) -> dict[int, int]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=stack.bootstrap, group_id=GROUP, enable_auto_commit=False
    )
    await consumer.start()
    try:
        return {n: await consumer.committed(TopicPartition(ACCEPTED, n)) or 0 for n in partitions}
    finally:
        await consumer.stop()
