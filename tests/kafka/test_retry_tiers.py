"""Postponed records on both brokers: later, in place of nothing, and at last kept (DESIGN §3)."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from assay.envelope import Message
from assay.topics import retry_name
from assay_runtime import pipeline, progress
from assay_runtime.failures import RetryLater, Stop
from assay_runtime.health import Health
from assay_runtime.pipeline import Pipeline, runners
from assay_runtime.records import Delivery
from assay_runtime.stage import Outcome
from assay_runtime.topic_admin import TopicSpec, ensure_topics
from deploy.dev.broker import EmbeddedBroker
from tests.kafka import delivery_rig as rig

ENGINES = pytest.mark.parametrize("engine", ["batch", "lane"])
TIERS = 2
Place = tuple[str, int, int]


@pytest.fixture
def names() -> rig.Names:
    return rig.Names()


def tiers(names: rig.Names) -> list[str]:
    return [retry_name(names.source, rig.SERVICE, tier) for tier in range(1, TIERS + 1)]


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
async def bootstrap(request: pytest.FixtureRequest, names: rig.Names) -> AsyncIterator[str]:
    """A broker that has the test's topics."""
    wanted = [*names.all, *tiers(names)]
    if request.param == "embedded":
        with EmbeddedBroker([(name, rig.PARTITIONS) for name in wanted]) as broker:
            yield broker.bootstrap
    else:
        broker = request.getfixturevalue("kafka_broker")
        await ensure_topics(
            broker.bootstrap, [TopicSpec(name, rig.PARTITIONS, 1) for name in wanted]
        )
        yield broker.bootstrap


@asynccontextmanager
async def running(
    bootstrap: str, what: Pipeline, drain_s: float = 2.0, **kafka: Any
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """The pipeline and its retries at work."""
    section = rig.kafka_section(bootstrap, **kafka)
    found = runners(rig.SERVICE, what, section, Health())
    async with AsyncExitStack() as stack:
        for runner in found:
            stack.push_async_callback(runner.stop, drain_s)
            await runner.start()
        tasks = [asyncio.create_task(runner.run()) for runner in found]
        try:
            yield tasks
        finally:
            for runner in found:
                await runner.stop(drain_s)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Unlucky:
    """Fails for records whose number is divisible by `every`, `times` times each; says when it
    saw which, and where they stood."""

    def __init__(self, sink: str, *, every: int, times: int) -> None:
        self._sink = sink
        self._every = every
        self._times = times
        self.seen: dict[bytes, list[float]] = defaultdict(list)
        self.places: dict[bytes, set[Place]] = defaultdict(set)

    async def __call__(self, deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        return [self._one(delivery) for delivery in deliveries]

    def _one(self, delivery: Delivery[Any]) -> Outcome:
        record = delivery.record
        self.seen[delivery.value].append(time.monotonic())
        self.places[delivery.value].add((record.topic, record.partition, record.offset))
        tries = len(self.seen[delivery.value])
        if int(delivery.value) % self._every == 0 and tries <= self._times:
            return RetryLater("the outside is away", code="away", request_id=delivery.id)
        return [Message(self._sink, record.key or b"", delivery.value, record.headers[:1])]


async def count(bootstrap: str, topic: str) -> int:
    return sum((await rig.ends(bootstrap, topic)).values())


@ENGINES
async def test_a_postponed_record_comes_through_and_holds_nothing_up(
    bootstrap: str, names: rig.Names, engine: str
) -> None:
    """X.4, X.6: the records behind it go on at once, it follows after its waits, under its
    origin's place, and every offset is committed."""
    total, every = 120, 10
    unlucky = Unlucky(names.sink, every=every, times=2)
    what = rig.pipeline(names, engine, unlucky, retries=TIERS)
    await rig.write(bootstrap, names.source, rig.rows(total, keys=7))
    async with running(bootstrap, what, retry_delays_s=(3.0, 0.5)):
        await rig.until(lambda: _at_least(bootstrap, names.sink, total))
    outputs = await rig.read(bootstrap, names.sink)
    assert len(outputs) == total
    assert rig.distinct(outputs) == {b"%d" % n for n in range(total)}
    for number in range(0, total, every):
        first, second, third = unlucky.seen[b"%d" % number]
        assert second - first >= 3.0
        assert third - second >= 0.5
    source = {
        record.value: (names.source, record.partition, record.offset)
        for record in await rig.read(bootstrap, names.source)
    }
    assert unlucky.places == {value: {place} for value, place in source.items()}
    for partition in range(rig.PARTITIONS):
        there = [unlucky.seen[value] for value, at in source.items() if at[1] == partition]
        assert max(seen[0] for seen in there) < min(s[1] for s in there if len(s) > 1)
    assert [await count(bootstrap, tier) for tier in tiers(names)] == [total // every] * 2
    assert await rig.committed(bootstrap, names) == await rig.ends(bootstrap, names.source)
    assert await rig.read(bootstrap, names.dead) == []


async def _at_least(bootstrap: str, topic: str, wanted: int) -> bool:
    return await count(bootstrap, topic) >= wanted


async def test_after_the_last_wait_it_is_kept(bootstrap: str, names: rig.Names) -> None:
    """X.4: the dead letter has the origin's bytes, headers and coordinates."""
    unlucky = Unlucky(names.sink, every=1, times=99)
    what = rig.pipeline(names, "lane", unlucky, retries=TIERS, dead_letter_limit=False)
    headers = [("ce_id", b"x"), ("odd", b"\xff\xfe"), ("assay.retry.topic", b"a publisher's own")]
    await rig.write(bootstrap, names.source, [(b"k", b"0", headers), (None, b"1", headers)])
    async with running(bootstrap, what, retry_delays_s=(0.1, 0.1)):
        await rig.until(lambda: _at_least(bootstrap, names.dead, 2))
    source = {record.value: record for record in await rig.read(bootstrap, names.source)}
    for dead in await rig.read(bootstrap, names.dead):
        record = source[dead.value]
        assert dead.key == record.key
        assert dead.headers[: len(headers)] == record.headers
        told = dict(dead.headers[len(headers) :])
        assert told["__connect.errors.topic"] == names.source.encode()
        assert int(told["__connect.errors.partition"]) == record.partition
        assert int(told["__connect.errors.offset"]) == record.offset
        assert (told["assay.error.code"], told["assay.error.attempts"]) == (b"away", b"3")
    assert all(len(seen) == 3 for seen in unlucky.seen.values())


async def test_the_end_does_not_wait_and_the_record_is_not_forgotten(
    bootstrap: str, names: rig.Names
) -> None:
    """A process that ends in the middle of a wait leaves the record to the next."""
    unlucky = Unlucky(names.sink, every=1, times=1)
    what = rig.pipeline(names, "lane", unlucky, retries=TIERS)
    await rig.write(bootstrap, names.source, rig.rows(8, keys=8))
    delay_s = 8.0
    async with running(bootstrap, what, drain_s=60, retry_delays_s=(delay_s,)) as tasks:
        await rig.until(lambda: _at_least(bootstrap, tiers(names)[0], 8))
        await asyncio.sleep(0.5)  # held back by now, not merely unread
        assert not any(task.done() for task in tasks)
        ending = time.monotonic()
    assert time.monotonic() - ending < delay_s - 1
    assert await count(bootstrap, names.sink) == 0
    async with running(bootstrap, what, retry_delays_s=(delay_s,)):
        await rig.until(lambda: _at_least(bootstrap, names.sink, 8), timeout_s=60)
    assert rig.distinct(await rig.read(bootstrap, names.sink)) == {b"%d" % n for n in range(8)}
    assert all(second - first >= delay_s for first, second in unlucky.seen.values())


async def test_waiting_for_the_time_is_no_stall(
    bootstrap: str, names: rig.Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watchdog ends what reads nothing in spite of lag; a record that is not due is no lag."""
    monkeypatch.setattr(progress, "_QUIET_S", 0.2)
    # Looked at more often than `stall_s`, as in a service: else it is due for longer than that.
    monkeypatch.setattr(pipeline, "_WATCH_S", 0.2)
    unlucky = Unlucky(names.sink, every=1, times=1)
    what = rig.pipeline(names, "batch", unlucky, retries=TIERS)
    await rig.write(bootstrap, names.source, rig.rows(1, keys=1))
    async with running(bootstrap, what, retry_delays_s=(8.0,), stall_s=1.0) as tasks:
        await rig.until(lambda: _at_least(bootstrap, names.sink, 1))
        assert not any(task.done() for task in tasks)


@pytest.mark.kafka
@pytest.mark.parametrize("bootstrap", ["kafka"], indirect=True)
async def test_a_second_member_takes_over_what_waits(bootstrap: str, names: rig.Names) -> None:
    """A rebalance in the middle of the waits: each record comes through, on one member or the
    other, and what is held back is not handled by who has lost the partition."""
    unlucky = Unlucky(names.sink, every=1, times=1)
    what = rig.pipeline(names, "lane", unlucky, retries=TIERS)
    await rig.write(bootstrap, names.source, rig.rows(40, keys=40))
    async with running(bootstrap, what, retry_delays_s=(4.0,)):
        await rig.until(lambda: _at_least(bootstrap, tiers(names)[0], 40))
        async with running(bootstrap, what, retry_delays_s=(4.0,)):
            await rig.until(lambda: _at_least(bootstrap, names.sink, 40), timeout_s=60)
    outputs = await rig.read(bootstrap, names.sink)
    assert rig.distinct(outputs) == {b"%d" % n for n in range(40)}
    assert all(times[1] - times[0] >= 4.0 for times in unlucky.seen.values())


async def test_without_topics_for_it_the_service_says_so(bootstrap: str, names: rig.Names) -> None:
    """More waits than topics is a mistake in the settings, not a record that vanishes."""
    what = rig.pipeline(names, "lane", Unlucky(names.sink, every=1, times=1), retries=TIERS)
    with pytest.raises(Exception, match="RETRY_DELAYS_S"):
        async with running(bootstrap, what, retry_delays_s=(1, 2, 3)):
            raise Stop("it started")
