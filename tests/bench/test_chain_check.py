"""A chain that drops, repeats or changes events is no result (chain_check.py)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.kafka.broker import Broker
from tests.bench import chain
from tests.bench.chain_check import Differences, check, differences
from tests.bench.chain_events import Row, rows
from tests.bench.hop_chain import ChainFailed

ROWS = list(rows(12))
CAME = [(row.key, row.value) for row in ROWS]
PARTITIONS = 4
_numbers = itertools.count()

Came = Sequence[tuple[bytes, bytes | None]]


def changed(value: bytes, **fields: object) -> bytes:
    return json.dumps(json.loads(value) | fields).encode()


def test_written_anew_and_in_another_order_is_the_same() -> None:
    """Spaces and the order of members are each variant's own, the partitions' order is nobody's."""
    anew = [(key, changed(value)) for key, value in reversed(CAME)]
    assert anew[0][1] != CAME[-1][1]
    assert not differences(anew, ROWS).any
    backwards = dict(reversed(json.loads(CAME[0][1]).items()))
    assert not differences([(CAME[0][0], json.dumps(backwards).encode())], ROWS[:1]).any


@pytest.mark.parametrize(
    ("came", "wrong"),
    [
        (CAME[1:], Differences(missing=1)),
        ([*CAME, CAME[3]], Differences(repeated=1)),
        ([*CAME[1:], CAME[3]], Differences(missing=1, repeated=1)),
        ([*CAME[1:], (CAME[0][0], changed(CAME[0][1], evm_source="x"))], Differences(changed=1)),
        ([*CAME[1:], (CAME[0][0], b"{")], Differences(changed=1)),
        ([*CAME[1:], (CAME[0][0], None)], Differences(changed=1)),
        ([*CAME, (b"0x0", CAME[0][1])], Differences(unknown=1)),
        ([], Differences(missing=len(ROWS))),
    ],
    ids=["dropped", "doubled", "doubled for dropped", "changed", "cut", "empty", "other", "none"],
)
def test_what_is_not_as_submitted_is_counted(came: Came, wrong: Differences) -> None:
    found = differences(came, ROWS)
    assert found == wrong
    assert found.any


def test_a_number_of_another_kind_is_a_change() -> None:
    """In Python 1 == 1.0 == True; to a reader of the topic they are not."""
    row = Row(b"k", b'{"a":1,"b":2.5}', [])
    for value in (b'{"a":1.0,"b":2.5}', b'{"a":true,"b":2.5}'):
        assert differences([(b"k", value)], [row]) == Differences(changed=1)


def test_only_the_variant_that_is_wrong_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails in its second round, and its first does not count either."""
    rounds: list[str] = []

    @contextmanager
    def hops(_: str, name: str, *__: object) -> Iterator[Any]:
        rounds.append(name)
        yield type("Hops", (), {"topics": [name]})

    def checked(_: str, topic: str, __: list[Row]) -> None:
        if topic == "chain.1":
            raise ChainFailed("1 missing")

    monkeypatch.setattr(chain, "HopChain", hops)
    monkeypatch.setattr(chain, "check", checked)
    figures = {"per_s": 100.0, "cpu_us": 10.0, "peak_rss_mb": 1.0}
    monkeypatch.setattr(chain, "run_once", lambda *_: figures)
    plan = chain.ChainPlan(events=20, rounds=3, variants=("floor", "chain", "faststream"))
    found = chain.measure("", tmp_path, plan, lambda _: None)
    assert found["failed"] == {"chain": "1 missing"}
    assert found["variants"].keys() == {"floor", "faststream"}
    assert "chain.2" not in rounds
    assert "faststream.2" in rounds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("came", "said"),
    [
        (CAME, ""),
        (CAME[1:], "1 missing"),
        ([*CAME, CAME[3]], "1 repeated"),
        ([*CAME[:-1], (CAME[-1][0], changed(CAME[-1][1], address="0x0"))], "1 changed"),
        ([], "12 missing"),
    ],
    ids=["same", "dropped", "doubled", "changed", "none"],
)
def test_all_partitions_are_read(kafka_broker: Broker, came: Came, said: str) -> None:
    """The event that is wrong stands in any of four partitions."""
    bootstrap = kafka_broker.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for partition in range(PARTITIONS):
        topic = f"bench.check.{next(_numbers)}"
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
        producer = Producer({"bootstrap.servers": bootstrap})
        for number, (key, value) in enumerate(reversed(came)):
            producer.produce(topic, value, key, partition=(partition + number) % PARTITIONS)
        producer.flush()
        if said:
            with pytest.raises(ChainFailed, match=said):
                check(bootstrap, topic, ROWS)
        else:
            check(bootstrap, topic, ROWS)
