"""Publisher: ordered sends, one wait, and what a broken producer means (research points 7, 8)."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    KafkaTimeoutError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
)
from prometheus_client import REGISTRY

from assay.envelope import Message
from assay_runtime.failures import DeadLetter, Pause, Stop
from assay_runtime.publisher import Publisher
from assay_runtime.record_batches import Sent
from assay_runtime.settings import KafkaSection
from deploy.loopback_ports import free_port

TRACE = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"


class MemoryProducer:
    """Keeps what is sent; `script` says what each send does."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.script: list[BaseException | None] = []
        self.confirms = True
        self._message_accumulator = SimpleNamespace(_batches={}, _pending_batches=set())

    async def send(self, topic: str, value: bytes, key: bytes, headers: Any) -> Any:
        if self.script and (error := self.script.pop(0)):
            raise error
        assert headers[-1] == ("traceparent", TRACE.encode())
        self.sent.append(value)
        future = asyncio.get_running_loop().create_future()
        if self.confirms:
            future.set_result(SimpleNamespace(topic=topic))
        self.futures.append(future)
        return future


@pytest.fixture
def producer() -> MemoryProducer:
    return MemoryProducer()


@pytest.fixture
def publisher(producer: MemoryProducer) -> Publisher:
    made = Publisher(KafkaSection(send_deadline_s=0.2), "c", "publisher-test")
    made._producer = producer
    return made


def message(value: bytes, topic: str = "t") -> Message:
    return Message(topic, b"k", value, ())


def published() -> float:
    labels = {"pipeline": "publisher-test", "topic": "t"}
    return REGISTRY.get_sample_value("assay_records_published_total", labels) or 0


async def test_in_order_and_counted_once_confirmed(
    publisher: Publisher, producer: MemoryProducer
) -> None:
    before = published()
    producer.confirms = False
    publish = asyncio.create_task(
        publisher.publish([(message(b"%d" % n), TRACE) for n in range(3)])
    )
    await asyncio.sleep(0.01)
    assert producer.sent == [b"0", b"1", b"2"]
    assert published() == before
    for future in producer.futures:
        future.set_result(SimpleNamespace(topic="t"))
    await publish
    assert published() == before + 3


@pytest.mark.parametrize("error", [OutOfOrderSequenceNumber(), ProducerClosed()])
async def test_a_poisoned_producer_ends_the_process(
    publisher: Publisher, producer: MemoryProducer, error: Exception
) -> None:
    """A sequence gap cannot be mended; and no exception is left that nobody asked for."""
    unheard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    producer.confirms = False
    publish = asyncio.create_task(publisher.publish([(message(b"x"), TRACE)] * 3))
    await asyncio.sleep(0.01)
    for future in producer.futures:
        future.set_exception(error)
    with pytest.raises(Stop, match="unusable"):
        await publish
    producer.futures.clear()
    del publish
    gc.collect()
    await asyncio.sleep(0)
    assert unheard == []


async def test_a_send_that_fails_abandons_those_before_it(
    publisher: Publisher, producer: MemoryProducer
) -> None:
    producer.confirms = False
    producer.script = [None, None, OutOfOrderSequenceNumber()]
    with pytest.raises(Stop, match="cannot send to t"):
        await publisher.publish([(message(b"x"), TRACE)] * 3)
    assert [future.cancelled() for future in producer.futures] == [True, True]


async def test_no_confirmation_within_the_deadline(
    publisher: Publisher, producer: MemoryProducer
) -> None:
    """An idempotent producer would wait for ever."""
    producer.confirms = False
    with pytest.raises(Stop, match="confirmed nothing"):
        await publisher.publish([(message(b"x"), TRACE)])


@pytest.fixture
async def disconnected(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Publisher]:
    """A started publisher whose producer has its buffer and no broker."""

    async def connected(self: Any) -> None:
        return None

    monkeypatch.setattr(AIOKafkaProducer, "start", connected)
    made = Publisher(KafkaSection(send_deadline_s=0.2), "c", "publisher-test")
    await made.start()
    assert made._producer is not None
    yield made
    made._producer._closed = True


async def test_what_is_not_confirmed_is_named_until_it_is(
    disconnected: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partitions, whether their records still wait or are on their way; not at once."""
    assert disconnected._producer is not None
    buffer = disconnected._producer._message_accumulator
    await buffer.add_message(TopicPartition("t", 1), b"k", b"v", 1)
    await buffer.add_message(TopicPartition("t", 3), b"k", b"v", 1)
    assert await disconnected.check_confirmed() is None
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    await buffer.add_message(TopicPartition("t", 2), b"k", b"v", 1)
    assert await disconnected.check_confirmed() == "not confirmed for more than 5 s: t/1, t/3"
    buffer._txn_manager.set_pid_and_epoch(1, 0)
    under_way = buffer._pop_batch(TopicPartition("t", 3))
    assert await disconnected.check_confirmed() == "not confirmed for more than 5 s: t/1, t/3"
    under_way.done(0)
    await asyncio.sleep(0)
    assert await disconnected.check_confirmed() == "not confirmed for more than 5 s: t/1"


async def test_before_it_starts_nothing_waits_for_confirmation() -> None:
    """Readiness is asked about from the first moment on."""
    assert await Publisher(KafkaSection(), "c", "publisher-test").check_confirmed() is None


async def test_who_is_ended_by_the_deadline_says_which_partition(disconnected: Publisher) -> None:
    """The log is what is left of the process."""
    assert disconnected._producer is not None
    buffer = disconnected._producer._message_accumulator
    future = await buffer.add_message(TopicPartition("t", 1), b"k", b"v", 1)
    with pytest.raises(Stop, match=r"confirmed nothing for 0\.2 s: t/1$"):
        await disconnected.confirm([Sent(future, "t", 1)])


async def test_a_full_buffer_is_waited_for_within_the_deadline(
    publisher: Publisher, producer: MemoryProducer
) -> None:
    """The buffer is full while the broker is away; that alone is no reason to end."""
    producer.script = [KafkaTimeoutError(), KafkaTimeoutError(), None]
    await publisher.publish([(message(b"x"), TRACE)])
    assert producer.sent == [b"x"]


async def test_nothing_is_sent_where_one_is_too_large(
    publisher: Publisher, producer: MemoryProducer
) -> None:
    """The topic's own limit counts, which the broker would enforce by poisoning the producer."""
    limited = "wallet.score.signed.v1"
    publisher.check(message(b"x" * 1_000_000, limited))
    publisher.check(message(b"x" * 2_000_000))
    with pytest.raises(DeadLetter) as caught:
        await publisher.publish(
            [(message(b"small"), TRACE), (message(b"x" * 1_200_000, limited), TRACE)]
        )
    assert caught.value.code == "output_too_large"
    assert producer.sent == []


async def test_an_absent_broker_is_waited_for_by_opened() -> None:
    publisher = Publisher(KafkaSection(bootstrap=f"127.0.0.1:{free_port()}"), "c", "p")
    with pytest.raises(Pause, match="broker"):
        await publisher.open()
    await publisher.close()


async def test_what_waits_for_a_leader_is_not_given_up(
    disconnected: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka fails a batch that has been without one for 40 s; here the send deadline decides."""
    assert disconnected._producer is not None
    waiting = disconnected._producer._message_accumulator
    builder = waiting.create_builder()
    builder.append(timestamp=None, key=b"k", value=b"v")
    confirmation = await waiting.add_batch(builder, TopicPartition("t", 0), 1)
    hour_later = time.monotonic() + 3_600
    monkeypatch.setattr(time, "monotonic", lambda: hour_later)
    waiting.drain_by_nodes(ignore_nodes=())
    assert not confirmation.done()
