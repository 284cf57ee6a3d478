"""Commits are read from the broker's own topic, and one that goes back is seen."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from assay_runtime.topic_admin import TopicSpec, ensure_topics
from deploy.kafka.broker import Broker
from tests.fault.commit_reader import Commit, commit_of, read_commits, steps_back

TOPIC = "commits.test"


def test_a_commit_that_goes_back() -> None:
    made = [(0, 5), (1, 9), (0, 7), (0, 6), (0, 6), (1, 9), (1, 2)]
    commits = [Commit("assay.a", "t", partition, offset) for partition, offset in made]
    other = [Commit("assay.b", "t", 0, 1), Commit("assay.b", "t", 0, 2)]
    assert steps_back([*commits, *other]) == {"assay.a": 2}


def test_what_is_no_commit() -> None:
    assert commit_of(None, b"x") is None
    assert commit_of(b"\0\1", None) is None
    assert commit_of(b"\0\2\0\1a", b"\0\3") is None


@pytest.mark.kafka
async def test_commits_on_kafka(broker: Broker) -> None:
    """Issue 6: the checker reads Kafka, never the services' own counters."""
    await ensure_topics(broker.bootstrap, [TopicSpec(TOPIC, 1, 1)])
    place = TopicPartition(TOPIC, 0)
    for group in ("assay.commits.test", "somebody.else"):
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
        )
        async with consumer:
            consumer.assign([place])
            for offset in (4, 9, 8):
                await consumer.commit({place: offset})
    found = [c for c in await read_commits(broker.bootstrap) if "commits" in c.group]
    assert [c.offset for c in found] == [4, 9, 8]
    assert steps_back(found) == {"assay.commits.test": 1}
