"""An embedded broker gets back what an earlier run left (issue 6, item 4)."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from assay.topics import catalogue
from deploy.dev import unfinished
from deploy.dev.broker import EmbeddedBroker
from deploy.dev.kept_records import Kept, prepare_stores
from deploy.dev.plan import EMBEDDED_PARTITIONS, BrokerChoice, ModelChoice, StackPlan
from deploy.dev.taking_up import all_read, publish
from deploy.dev.unfinished import Unfinished
from services.evidence.adapters.store_sqlite import SqliteEvidence
from services.evidence.domain import entry_of
from services.ingest.adapters.requests_sqlite import SqliteRequests

SUBMITTED = "wallet.event.submitted.v1"
HEADERS: list[tuple[str, bytes | None]] = [("ce_id", b"1"), ("ce_source", b"/x"), ("none", None)]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    topics = [(topic.name, EMBEDDED_PARTITIONS) for topic in catalogue().everything()]
    with EmbeddedBroker(topics) as running:
        yield running


async def _read(broker: EmbeddedBroker, count: int) -> list[Kept]:
    """All records of the input topic, committed for evidence."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id="assay.evidence", enable_auto_commit=False,
        auto_offset_reset="earliest", fetch_max_wait_ms=10,
    )  # fmt: skip
    await consumer.start()
    try:
        consumer.assign([TopicPartition(SUBMITTED, n) for n in range(EMBEDDED_PARTITIONS)])
        found: list[Kept] = []
        async with asyncio.timeout(20):
            while len(found) < count:
                for tp, records in (await consumer.getmany(timeout_ms=100)).items():
                    found += [Kept(SUBMITTED, record.key, record.value, list(record.headers),
                                   tp.partition) for record in records]  # fmt: skip
        await consumer.commit()
        return found
    finally:
        await consumer.stop()


async def test_records_are_published_as_they_were(broker: EmbeddedBroker) -> None:
    """Byte for byte, in order, on the partition they had; and a sink that has not read them is
    known from one that has."""
    records = [Kept(SUBMITTED, None, b"%d" % number, HEADERS, 2) for number in range(50)]
    assert await all_read(broker.bootstrap, "evidence", 10)
    assert await publish(broker.bootstrap, iter(records)) == len(records)
    assert await _read(broker, len(records)) == records
    assert await all_read(broker.bootstrap, "evidence", 10)
    await publish(broker.bootstrap, records[:1])
    assert not await all_read(broker.bootstrap, "evidence", 3)


def _kept(folder: Path, broker: str, kept: bool, said: list[str]) -> Unfinished:
    plan = StackPlan(BrokerChoice.parse(broker), ModelChoice.parse("simulator"), folder, kept=kept)
    return Unfinished(plan, {}, said.append)


async def _leave_open(folder: Path) -> None:
    """One request that can be taken up again and one of which nothing was recorded."""
    await prepare_stores(folder)
    evidence = SqliteEvidence(folder / "evidence.sqlite")
    requests = SqliteRequests(folder / "requests.sqlite")
    await evidence.open()
    await requests.open()
    entry = entry_of(
        SUBMITTED, 2, 7, time.time_ns() // 1_000_000, tuple(HEADERS), b"{}", tenant="default"
    )
    await evidence.append([entry], {})
    await requests.announce(str(uuid.uuid4()), "a" * 64, 1)
    await evidence.close()
    await requests.close()


async def test_the_next_start_takes_up_what_is_open(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """It says how many, and how many it cannot."""
    await _leave_open(tmp_path)
    said: list[str] = []
    kept = _kept(tmp_path, "embedded", True, said)
    await kept.before_services(broker.bootstrap)
    assert said == []
    kept.take_up()
    assert said == [
        "open requests of an earlier run are taken up: 1",
        "LOST open requests of which nothing was recorded: 1; publish them again under the "
        "same ids",
    ]
    assert await _read(broker, 1) == [Kept(SUBMITTED, None, b"{}", HEADERS, 2)]
    await kept.leave_off()


@pytest.mark.parametrize(
    ("choice", "keeps", "words"),
    [
        ("embedded", True, ["open requests: 1; the next start with this data takes them up again",
                            "LOST open requests of which nothing was recorded: 1"]),
        ("embedded", False, ["LOST open requests: 2; nothing is kept without --data"]),
        ("kafka", True, ["open requests: 2; the next start with this data goes on with them"]),
        ("kafka", False, ["LOST open requests: 2; nothing is kept without --data"]),
        ("b:9092", False, ["open requests: 2; their records stay on b:9092"]),
    ],
)  # fmt: skip
async def test_the_end_says_what_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str, keeps: bool, words: list[str]
) -> None:
    """Issue 6, item 4: said at the terminal, and what becomes of it; nothing where all is done."""

    async def none(*_: object) -> int:
        return 0

    monkeypatch.setattr(unfinished, "publish", none)
    said: list[str] = []
    kept = _kept(tmp_path, choice, keeps, said)
    await prepare_stores(tmp_path)
    await kept.before_services("b:9092")
    kept.say_what_is_open()
    kept.take_up()
    kept.say_what_is_open()
    assert said == []
    await _leave_open(tmp_path)
    _kept(tmp_path, choice, keeps, said).say_what_is_open()
    assert said == []  # a start that failed has other things to say
    kept.say_what_is_open()
    assert said == words
    await kept.leave_off()
