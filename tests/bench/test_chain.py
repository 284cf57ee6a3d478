"""The chain's hops do what they are measured for."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from assay.envelope import read_binary
from assay.ids import event_id
from assay_runtime.tracing import parse_traceparent
from deploy.kafka.broker import Broker
from tests.bench.chain import COMMANDS, run_once
from tests.bench.chain_check import check
from tests.bench.chain_events import TYPE, rows
from tests.bench.hop_chain import HopChain

EVENTS = 40


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["floor", "tuned_floor", "chain", "faststream_batch"])
def test_every_event_passes_five_hops_unchanged(
    kafka_broker: Broker, tmp_path: Path, variant: str
) -> None:
    """Issue 6.7: values as they went in; ours with new ids by the one rule and the same traces."""
    warm_up, work = list(rows(10, seed=2)), list(rows(EVENTS))
    bootstrap = kafka_broker.bootstrap
    with HopChain(bootstrap, f"test-{variant}", COMMANDS[variant], tmp_path, partitions=1) as chain:
        found = run_once(chain, warm_up, work)
        check(bootstrap, chain.topics[-1], [*warm_up, *work])
        ids = [_read(bootstrap, topic) for topic in chain.topics]
    assert found["per_s"] > 0
    assert found["cpu_us"] > 0
    first, last = ids[0], ids[-1]
    assert [trace for _, _, trace in first] == [trace for _, _, trace in last]
    if variant == "chain":
        for before, after in itertools.pairwise(ids):
            for (parent, _, _), (made, value, _) in zip(before, after, strict=True):
                assert made == event_id(parent, TYPE, value)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["floor", "chain"])
def test_replicas_that_join_repeat_nothing(
    kafka_broker: Broker, tmp_path: Path, variant: str
) -> None:
    """The warm-up waits for both of each hop, so the check holds for them as well."""
    warm_up, work = list(rows(10, seed=2)), list(rows(EVENTS))
    bootstrap, command = kafka_broker.bootstrap, COMMANDS[variant]
    with HopChain(bootstrap, f"two-{variant}", command, tmp_path, hops=2, replicas=2) as chain:
        run_once(chain, warm_up, work)
        check(bootstrap, chain.topics[-1], [*warm_up, *work])


def _read(bootstrap: str, topic: str) -> list[tuple[str, bytes, str]]:
    """Event id, value and trace id of every record."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}.read"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        for record in consumer.consume(10 + EVENTS, timeout=20):
            headers = record.headers() or []
            span = parse_traceparent(dict(headers)["traceparent"].decode())
            assert span is not None
            found.append((read_binary(headers).id, record.value(), span.trace_id))
        assert len(found) == 10 + EVENTS
        return found
    finally:
        consumer.close()
