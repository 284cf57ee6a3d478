"""The lag gauge follows the log, whether or not anything is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError
from prometheus_client import REGISTRY

from assay_runtime import lag as module
from assay_runtime.lag import Lag
from assay_runtime.records import Position
from assay_runtime.window import Window

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class Broker:
    """What is asked of a consumer: ends as they are, and as they were at the last fetch."""

    def __init__(self) -> None:
        self.ends = {ONE: 10, TWO: 10}
        self.fetched = {ONE: 10, TWO: 10}
        self.led_by_nobody: set[TopicPartition] = set()
        self.fails: Callable[[], Any] = lambda: None
        self.answers = 0

    @property
    def _client(self) -> Broker:
        return self

    @property
    def cluster(self) -> Broker:
        return self

    def leader_for_partition(self, tp: TopicPartition) -> int:
        return -1 if tp in self.led_by_nobody else 1

    def assignment(self) -> set[TopicPartition]:
        return set(self.fetched)

    def highwater(self, tp: TopicPartition) -> int | None:
        return self.fetched[tp]

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.answers += 1
        if self.led_by_nobody.intersection(tps):
            raise KafkaTimeoutError
        if failure := self.fails():
            raise failure
        return {tp: self.ends[tp] for tp in tps}


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def window() -> Window:
    made = Window()
    made.assign({Position(*ONE): 4, Position(*TWO): 10})
    return made


@pytest.fixture
async def gauge(
    broker: Broker, window: Window, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[asyncio.Task[None]]:
    """At work, without pauses."""
    monkeypatch.setattr(module, "_LOOK_S", 0.0)
    monkeypatch.setattr(module, "_ASK_S", 0.0)
    task = asyncio.create_task(Lag("lag-test", window).run(broker))
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def shown(broker: Broker) -> float | None:
    """After two further answers, or refusals, have been looked at."""
    before = broker.answers
    async with asyncio.timeout(5):
        while broker.answers < before + 3:
            await asyncio.sleep(0)
    return REGISTRY.get_sample_value("assay_consumer_lag_records", {"pipeline": "lag-test"})


async def test_it_grows_while_nothing_is_read(
    broker: Broker, window: Window, gauge: asyncio.Task[None]
) -> None:
    """In an outage records wait to be handed out, so nothing is fetched that would tell."""
    assert await shown(broker) == 6
    broker.ends[TWO] = 1_000
    assert await shown(broker) == 996
    window.skip(Position(*ONE), 10)
    assert await shown(broker) == 990


async def test_what_was_fetched_since_counts(
    broker: Broker, window: Window, gauge: asyncio.Task[None]
) -> None:
    """Between two answers reading goes on."""
    broker.fetched[ONE] = 20
    assert await shown(broker) == 16


@pytest.mark.parametrize("failure", [KafkaConnectionError(), OSError(), TimeoutError()])
async def test_a_broker_that_does_not_answer_leaves_the_last_value(
    broker: Broker, window: Window, gauge: asyncio.Task[None], failure: Exception
) -> None:
    """And ends nothing; it goes on once there is an answer."""
    broker.ends[TWO] = 50
    assert await shown(broker) == 46
    broker.fails = lambda: failure
    broker.ends[TWO] = 60
    assert await shown(broker) == 46
    assert not gauge.done()
    broker.fails = lambda: None
    assert await shown(broker) == 56


async def test_a_question_that_hangs_is_given_up(
    broker: Broker, window: Window, gauge: asyncio.Task[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka would repeat it for 40 s."""
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    answer = broker.end_offsets

    async def hang(tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        broker.answers += 1
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(broker, "end_offsets", hang)
    assert await shown(broker) == 6
    monkeypatch.setattr(broker, "end_offsets", answer)
    monkeypatch.setattr(module, "_PATIENCE_S", 5.0)
    broker.ends[TWO] = 20
    assert await shown(broker) == 16


async def test_one_without_a_leader_keeps_its_last_end_and_holds_up_no_other(
    broker: Broker, window: Window, gauge: asyncio.Task[None]
) -> None:
    """Nobody can ask for its end, nor write there."""
    broker.ends = {ONE: 20, TWO: 15}
    assert await shown(broker) == 21
    broker.led_by_nobody = {TWO}
    broker.ends[ONE] = 30
    assert await shown(broker) == 31


async def test_what_went_to_another_member_no_longer_counts(
    broker: Broker, window: Window, gauge: asyncio.Task[None]
) -> None:
    """Nor is it asked about; what comes back is behind by what it was last known to be."""
    broker.ends = {ONE: 20, TWO: 30}
    assert await shown(broker) == 36
    window.revoke([Position(*TWO)])
    del broker.fetched[TWO], broker.ends[TWO]
    assert await shown(broker) == 16
