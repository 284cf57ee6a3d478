"""Topics are created idempotently and drift is named, never repaired silently (issue item 6)."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from assay.topics import catalogue
from assay_runtime.topic_admin import TopicAdminError, TopicsDiffer, TopicSpec, ensure_topics
from deploy.kafka.broker import Broker
from deploy.loopback_ports import free_port

_numbers = itertools.count(1)


def spec(partitions: int = 3, **configs: str) -> TopicSpec:
    """A topic no other test has."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    return TopicSpec(f"topic.admin.{next(_numbers)}", partitions, 1, settings)


async def test_created_once_then_present(kafka_broker: Broker) -> None:
    """A second run changes nothing and says so."""
    old, new = spec(cleanup_policy="delete", retention_ms="3600000"), spec(1)
    assert (await ensure_topics(kafka_broker.bootstrap, [old])).created == (old.name,)
    report = await ensure_topics(kafka_broker.bootstrap, [old, new])
    assert (report.created, report.present) == ((new.name,), (old.name,))
    report = await ensure_topics(kafka_broker.bootstrap, [old, new])
    assert (report.created, report.present) == ((), (old.name, new.name))


async def test_every_difference_is_listed_and_nothing_touched(kafka_broker: Broker) -> None:
    """Partition count, replicas and settings; a missing topic is not created either."""
    made = spec(3, retention_ms="1000", cleanup_policy="delete")
    await ensure_topics(kafka_broker.bootstrap, [made])
    wanted = TopicSpec(
        made.name, 12, 3, {"retention.ms": "2000", "cleanup.policy": "delete", "no.such": "1"}
    )
    missing = spec()
    with pytest.raises(TopicsDiffer) as caught:
        await ensure_topics(kafka_broker.bootstrap, [wanted, missing])
    assert caught.value.differences == (
        f"{made.name} has 3 partitions, wanted 12",
        f"{made.name} has 1 replicas, wanted 3",
        f"{made.name} has retention.ms=1000, wanted 2000",
        f"{made.name} has no.such=None, wanted 1",
    )
    report = await ensure_topics(kafka_broker.bootstrap, [made, missing])
    assert report.created == (missing.name,)


async def test_a_refused_topic_names_the_reason(kafka_broker: Broker) -> None:
    """More replicas than brokers, and a setting Kafka does not know."""
    too_many = TopicSpec("topic.admin.replicas", 1, 3)
    unknown = TopicSpec("topic.admin.unknown", 1, 1, {"no.such.setting": "1"})
    with pytest.raises(TopicAdminError) as caught:
        await ensure_topics(kafka_broker.bootstrap, [too_many, unknown])
    assert "topic.admin.replicas: " in str(caught.value)
    assert "no.such.setting" in str(caught.value)


async def test_the_whole_catalogue_fits(kafka_broker: Broker) -> None:
    """DESIGN §2: every topic and dead letter of topics.toml is accepted by a real broker."""
    wanted = [
        TopicSpec(topic.name, topic.partitions, 1, topic.broker_config())
        for topic in catalogue().on_broker()
    ]
    assert (await ensure_topics(kafka_broker.bootstrap, wanted)).created
    report = await ensure_topics(kafka_broker.bootstrap, wanted)
    assert report.present == tuple(topic.name for topic in wanted)


async def test_two_at_once_agree(kafka_broker: Broker) -> None:
    """Replicas that start together both succeed, and one of them created the topic."""
    wanted = [spec(1) for _ in range(5)]
    reports = await asyncio.gather(
        *(ensure_topics(kafka_broker.bootstrap, wanted) for _ in range(3))
    )
    created = [name for report in reports for name in report.created]
    assert sorted(created) == sorted(topic.name for topic in wanted)


async def test_nobody_there_is_said() -> None:
    """An unreachable broker is a TopicAdminError that names the address."""
    where = f"127.0.0.1:{free_port()}"
    with pytest.raises(TopicAdminError, match=where):
        await ensure_topics(where, [spec()], timeout_s=2)
