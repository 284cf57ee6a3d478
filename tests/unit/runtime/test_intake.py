"""Intake between aiokafka's callbacks and the engine, with a consumer in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog
from aiokafka import TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    CorruptRecordException,
    IllegalStateError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
)
from aiokafka.structs import ConsumerRecord, OffsetAndMetadata
from prometheus_client import REGISTRY

from assay_runtime import intake as intake_module
from assay_runtime import positions as positions_module
from assay_runtime.failures import Pause, Stop
from assay_runtime.intake import Intake
from assay_runtime.progress import Progress
from assay_runtime.records import Position
from assay_runtime.settings import KafkaSection
from assay_runtime.starting import FROM_FIRST

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class MemoryConsumer:
    """What Intake uses of AIOKafkaConsumer; `at` moves with what is handed out."""

    def __init__(self) -> None:
        self.logs = {ONE: 10, TWO: 10}
        self.low = {ONE: 0, TWO: 0}
        self.at: dict[TopicPartition, int] = {}
        self.assigned = {ONE, TWO}
        self.commits: list[dict[TopicPartition, int]] = []
        self.group: dict[TopicPartition, int] = {}
        self.metadata: dict[TopicPartition, str] = {}
        self.metadata_limit = 4_096
        self.script: list[Any] = []
        self.led_by_nobody: set[TopicPartition] = set()
        self.fetched_ends: dict[TopicPartition, int] = {}
        self.during_questions: Any = None

    async def getmany(self, *only: TopicPartition, timeout_ms: int, max_records: int) -> Any:
        await asyncio.sleep(0)
        step = self.script.pop(0) if self.script else None
        fetched: dict[TopicPartition, list[Any]] = {}
        for tp in sorted(self.assigned):
            if tp not in self.at or (only and tp not in only):
                continue
            if step == "fails after the first" and tp == TWO:
                raise CorruptRecordException
            if self.at[tp] < self.low[tp]:
                raise OffsetOutOfRangeError({tp: self.at[tp]})
            fetched[tp] = [row(tp, n) for n in range(self.at[tp], self.logs[tp])][:3]
            self.at[tp] += len(fetched[tp])
        return fetched

    def seek(self, tp: TopicPartition, offset: int) -> None:
        if tp not in self.assigned:
            raise IllegalStateError(f"{tp} is not assigned")
        self.at[tp] = offset

    async def position(self, tp: TopicPartition) -> int:
        return self.at[tp]

    def assignment(self) -> set[TopicPartition]:
        return self.assigned

    def highwater(self, tp: TopicPartition) -> int | None:
        return self.fetched_ends.get(tp)

    def leader_for_partition(self, tp: TopicPartition) -> int:
        return -1 if tp in self.led_by_nobody else 1

    @property
    def _client(self) -> MemoryConsumer:
        return self

    @property
    def cluster(self) -> MemoryConsumer:
        return self

    async def beginning_offsets(self, tps: Any) -> dict[TopicPartition, int]:
        if self.led_by_nobody.intersection(tps):
            raise KafkaTimeoutError
        if self.during_questions:
            await self.during_questions()
        return {tp: self.low[tp] for tp in tps}

    async def end_offsets(self, tps: Any) -> dict[TopicPartition, int]:
        if self.led_by_nobody.intersection(tps):
            raise KafkaTimeoutError
        return {tp: self.logs[tp] for tp in tps}

    @property
    def _coordinator(self) -> MemoryConsumer:
        return self

    async def fetch_committed_offsets(
        self, tps: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            tp: OffsetAndMetadata(self.group[tp], self.metadata.get(tp, ""))
            for tp in tps
            if tp in self.group
        }

    async def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        if any(len(at.metadata) > self.metadata_limit for at in offsets.values()):
            raise OffsetMetadataTooLargeError
        self.commits.append({tp: at.offset for tp, at in offsets.items()})
        self.group.update(self.commits[-1])
        self.metadata.update({tp: at.metadata for tp, at in offsets.items()})

    async def stop(self) -> None:
        self.assigned = set()


class SinkStore:
    """Positions beside rows; `away` is how often it is not there."""

    def __init__(self, kept: dict[Position, int], away: int = 0) -> None:
        self.kept = kept
        self.away = away

    async def positions(self, wanted: Any) -> dict[Position, int]:
        if self.away:
            self.away -= 1
            raise Pause("store", "away")
        return {p: at for p, at in self.kept.items() if p in wanted}

    async def pass_over(self, positions: Any) -> None:
        await self.positions(())
        self.kept.update(positions)


def sink(
    consumer: MemoryConsumer, store: SinkStore, overrun: Any = "continue", **options: Any
) -> Intake:
    async def drain(seconds: float) -> None:
        pass

    made = Intake(
        KafkaSection(overrun=overrun),
        pipeline="p", group="g", topics=["t"], client_id="c", drain=drain,
        stored_positions=store, **options,
    )  # fmt: skip
    made._consumer = consumer
    return made


def row(tp: TopicPartition, offset: int) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord(tp.topic, tp.partition, offset, 0, 0, b"k", b"v", 0, 1, 1, ())


@pytest.fixture
def consumer() -> MemoryConsumer:
    return MemoryConsumer()


@pytest.fixture
def drained() -> list[float]:
    return []


@pytest.fixture
def intake(
    consumer: MemoryConsumer, drained: list[float], monkeypatch: pytest.MonkeyPatch
) -> Intake:
    monkeypatch.setattr(intake_module, "_RETRY_S", 0.0)
    monkeypatch.setattr(positions_module, "_RETRY_S", 0.0)

    async def drain(seconds: float) -> None:
        drained.append(seconds)

    made = Intake(
        KafkaSection(overrun="continue"),
        pipeline="p", group="g", topics=["t"], client_id="c", drain=drain,
    )  # fmt: skip
    made._consumer = consumer
    return made


async def offsets(intake: Intake, **options: Any) -> list[tuple[int, int]]:
    polled = await intake.poll(100, 0, **options)
    return [(record.partition, record.offset) for _, record in polled]


async def test_an_error_of_one_partition_loses_nothing_of_another(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """aiokafka hands records of one partition out and then raises for the next: the first's
    position has moved, and without going back its records would be committed unread."""
    await intake.on_partitions_assigned([ONE, TWO])
    consumer.script = ["fails after the first"]
    assert await offsets(intake) == []
    assert await offsets(intake) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


async def test_records_of_the_new_assignment_that_come_early_are_dropped(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """Research point 13; they are read again from the committed position."""
    await intake.on_partitions_assigned([ONE])
    await offsets(intake)
    await intake.on_partitions_revoked([ONE])
    consumer.at = {ONE: 5}
    assert await offsets(intake) == []
    consumer.group = {ONE: 2}
    await intake.on_partitions_assigned([ONE])
    assert await offsets(intake) == [(0, 2), (0, 3), (0, 4)]


async def test_revocation_lets_go_even_where_the_drain_fails(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """aiokafka swallows the error; kept positions would make every later commit refused."""
    await intake.on_partitions_assigned([ONE, TWO])
    polled = await intake.poll(100, 0)

    async def broken(seconds: float) -> None:
        raise RuntimeError("bug")

    intake._drain = broken
    with pytest.raises(RuntimeError):
        await intake.on_partitions_revoked([ONE, TWO])
    assert intake.window.positions() == ()
    commits = len(consumer.commits)
    for ticket, _ in polled:
        intake.complete(ticket)
    await intake._committer.commit(consumer)
    assert len(consumer.commits) == commits


async def test_a_rebalance_while_positions_are_asked_for(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """The same partitions come back after another member moved them on: the old answer is
    not used."""
    consumer.group = {ONE: 1, TWO: 1}
    await intake.on_partitions_assigned([ONE, TWO])

    async def meanwhile() -> None:
        consumer.during_questions = None
        await intake.on_partitions_revoked([ONE, TWO])
        consumer.group = {ONE: 8, TWO: 8}
        await intake.on_partitions_assigned([ONE, TWO])

    consumer.during_questions = meanwhile
    await offsets(intake)
    assert await offsets(intake) == [(0, 8), (0, 9), (1, 8), (1, 9)]


async def test_the_commit_is_the_lowest_unfinished(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """Completed out of order; the start is committed as well, once, and what is finished above
    the watermark."""
    await intake.on_partitions_assigned([ONE])
    tickets = [ticket for ticket, _ in await intake.poll(100, 0)]
    await intake._committer.commit(consumer)
    intake.complete(tickets[2])
    await intake._committer.commit(consumer)
    await intake._committer.commit(consumer)
    intake.complete(tickets[0])
    await intake._committer.commit(consumer)
    intake.complete(tickets[1])
    await intake.stop()
    assert consumer.commits == [{ONE: 0}, {ONE: 0}, {ONE: 1}, {ONE: 3}]


async def finished_above(intake: Intake, consumer: MemoryConsumer, *done: int) -> None:
    """An assignment of ONE that finished these offsets, committed, and is over."""
    await intake.on_partitions_assigned([ONE])
    for ticket, record in await intake.poll(100, 0):
        if record.offset in done:
            intake.complete(ticket)
    await intake.on_partitions_revoked([ONE])


async def test_what_is_finished_is_not_read_again(intake: Intake, consumer: MemoryConsumer) -> None:
    """Issue item 1: finished offsets above the watermark come back with the commit."""
    await finished_above(intake, consumer, 0, 2)
    assert consumer.group == {ONE: 1}
    await intake.on_partitions_assigned([ONE])
    assert await offsets(intake) == [(0, 1), (0, 3)]
    assert await offsets(intake) == [(0, 4), (0, 5), (0, 6)]


@pytest.mark.parametrize("why", ["reset by hand", "another incarnation", "a shorter log"])
async def test_finished_offsets_of_something_else_are_not_believed(
    intake: Intake, consumer: MemoryConsumer, why: str
) -> None:
    """They hold for one committed offset, one incarnation and a log that still has them."""
    await finished_above(intake, consumer, 1, 2)
    assert consumer.group == {ONE: 0}
    again = 0
    if why == "reset by hand":
        # A tool may leave the old metadata where it moves an offset.
        consumer.group[ONE] = again = 1
    elif why == "another incarnation":
        intake._positions._starting._kafka = KafkaSection(log="anew")
    else:
        consumer.logs[ONE] = 2
    await intake.on_partitions_assigned([ONE])
    polls = [await offsets(intake) for _ in range(3)]
    assert next(p for p in polls if p)[:2] == [(0, again), (0, again + 1)]


async def test_a_broker_that_takes_no_metadata(intake: Intake, consumer: MemoryConsumer) -> None:
    """The offset is committed all the same; finished records are read again."""
    consumer.metadata_limit = 8
    await finished_above(intake, consumer, 0, 2)
    assert consumer.group == {ONE: 1}
    await intake.on_partitions_assigned([ONE])
    assert await offsets(intake) == [(0, 1), (0, 2), (0, 3)]


async def test_what_was_finished_is_not_counted_as_lost(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """Retention took 0 to 5; of these 1 and 2 were done."""
    await finished_above(intake, consumer, 1, 2)
    consumer.low[ONE] = 6
    before = lost()
    await intake.on_partitions_assigned([ONE])
    assert await offsets(intake) == [(0, 6), (0, 7), (0, 8)]
    assert lost() - before == 4


async def all_done(intake: Intake) -> None:
    """An assignment of ONE whose first poll, 0 to 2, is done."""
    await intake.on_partitions_assigned([ONE])
    for ticket, _ in await intake.poll(100, 0):
        intake.complete(ticket)


async def test_a_gap_noticed_after_the_partition_went_is_not_counted(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """Issue 6 item 4: whoever has the partition by then counts it, once; here it comes back."""
    await all_done(intake)
    consumer.logs[ONE], consumer.low[ONE] = 40, 23
    assert await offsets(intake) == []

    async def meanwhile() -> None:
        consumer.during_questions = None
        await intake.on_partitions_revoked([ONE])

    before = lost()
    consumer.during_questions = meanwhile
    await offsets(intake)
    assert consumer.during_questions is None
    assert lost() == before
    await intake.on_partitions_assigned([ONE])
    await offsets(intake)
    assert lost() - before == 20


async def test_a_gap_is_counted_once_though_its_commit_was_refused(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """A member that was stopped for a while passes the gap, learns that its group went on without
    it, and starts again where the group stands: below the same gap, which may have grown."""
    await all_done(intake)
    await intake._committer.commit(consumer)
    consumer.logs[ONE], consumer.low[ONE] = 40, 23
    before = lost()
    await offsets(intake)
    assert await offsets(intake) == [(0, 23), (0, 24), (0, 25)]
    assert lost() - before == 20

    async def refused(offsets: Any) -> None:
        raise CommitFailedError

    consumer.commit = refused  # type: ignore[method-assign]
    await intake.on_partitions_revoked([ONE])
    consumer.low[ONE] = 30
    await intake.on_partitions_assigned([ONE])
    assert await offsets(intake) == [(0, 30), (0, 31), (0, 32)]
    assert lost() - before == 27


async def test_another_log_of_the_same_name_is_counted_anew(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """A topic that was made anew loses other records at the same offsets."""
    before = lost()
    for low, counted in ((20, 20), (6, 26)):
        consumer.logs[ONE], consumer.low[ONE] = 40, low
        consumer.group[ONE] = 0
        await intake.on_partitions_assigned([ONE])
        await offsets(intake)
        await intake.on_partitions_revoked([ONE])
        assert lost() - before == counted


async def test_what_was_finished_above_is_not_lost_in_a_gap_either(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """A running consumer is overtaken while what an earlier assignment finished lies ahead."""
    await finished_above(intake, consumer, 0, 2)
    await intake.on_partitions_assigned([ONE])
    await intake._positions.settle(consumer)
    consumer.low[ONE] = 6
    before = lost()
    for _ in range(2):
        await offsets(intake)
    assert lost() - before == 4  # 1, 3, 4 and 5


async def test_stop_names_every_loss(consumer: MemoryConsumer) -> None:
    """Issue 6 item 4: all partitions, counted and logged each, before the process ends."""

    async def drain(seconds: float) -> None:
        pass

    intake = Intake(
        KafkaSection(), pipeline="p", group="g", topics=["t"], client_id="c", drain=drain
    )
    intake._consumer = consumer
    consumer.group = {ONE: 0, TWO: 1}
    consumer.low = {ONE: 5, TWO: 4}
    before = lost()
    await intake.on_partitions_assigned([ONE, TWO])
    with (
        structlog.testing.capture_logs() as logs,
        pytest.raises(Stop, match=r"8 records were removed by retention.*\(t/0: 5, t/1: 3\)"),
    ):
        await intake.poll(100, 0)
    assert [line["partition"] for line in logs if line["event"] == "retention_overrun"] == [0, 1]
    assert lost() - before == 8
    await intake.stop()
    assert consumer.commits == [], "the next start finds the same loss"


async def test_what_went_before_the_group_knew_an_offset_is_lost(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """Away for as long as the topic keeps records, the group may be forgotten as well."""
    consumer.low = {ONE: 5, TWO: 0}
    before = lost()
    await intake.on_partitions_assigned([ONE, TWO])
    assert (await offsets(intake))[0] == (0, 5)
    assert lost() - before == 5


@pytest.mark.parametrize(("stored", "count"), [(2, 3), (5, 0), (8, 0)])
async def test_a_sink_loses_what_went_beyond_its_store(
    consumer: MemoryConsumer, stored: int, count: int
) -> None:
    """The store knows better than a group that was forgotten."""
    intake = sink(consumer, SinkStore({Position("t", 0): stored}))
    consumer.low[ONE] = 5
    before = lost()
    await intake.on_partitions_assigned([ONE])
    assert (await offsets(intake))[0] == (0, 5)
    assert lost() - before == count


@pytest.mark.parametrize("kept", [{}, {Position("t", 0): 2}])
async def test_a_loss_that_was_told_does_not_end_the_next_start(
    consumer: MemoryConsumer, kept: dict[Position, int]
) -> None:
    """Nor where no record has come since, beside which the store would keep an offset."""
    store = SinkStore(kept)
    consumer.low[ONE] = consumer.logs[ONE] = 10
    first = sink(consumer, store)
    await first.on_partitions_assigned([ONE])
    assert await offsets(first) == []
    await first.stop()
    consumer.assigned = {ONE}
    again = sink(consumer, store, "stop")
    await again.on_partitions_assigned([ONE])
    assert await offsets(again) == []
    assert again.window.positions() == (Position("t", 0),)


async def test_a_gap_passed_while_it_runs_is_not_found_again(consumer: MemoryConsumer) -> None:
    """The store may be away just then: it is said, and nothing waits for it."""
    store = SinkStore({Position("t", 0): 3})
    intake = sink(consumer, store)
    consumer.group = {ONE: 3}
    await intake.on_partitions_assigned([ONE])
    assert await offsets(intake) == [(0, 3), (0, 4), (0, 5)]
    consumer.low[ONE], consumer.logs[ONE] = 8, 10
    assert await offsets(intake) == []
    assert await offsets(intake) == [(0, 8), (0, 9)]
    assert store.kept == {Position("t", 0): 8}
    consumer.low[ONE], consumer.logs[ONE], store.away = 12, 14, 1
    with structlog.testing.capture_logs() as logs:
        assert await offsets(intake) == []
        assert await offsets(intake) == [(0, 12), (0, 13)]
    assert "gaps_not_stored" in [line["event"] for line in logs]


async def test_a_partition_without_a_leader_holds_up_no_other(
    consumer: MemoryConsumer, intake: Intake
) -> None:
    """It is said, for readiness, and read once it has a leader; its lag is asked for no sooner."""
    told: list[str | None] = []
    intake._positions._on_pause = told.append
    consumer.led_by_nobody = {TWO}
    await intake.on_partitions_assigned([ONE, TWO])
    assert await offsets(intake) == [(0, 0), (0, 1), (0, 2)]
    assert told == ["no leader for t/1"]
    assert await intake.waiting() == "lag 10"
    consumer.led_by_nobody = set()
    assert await offsets(intake) == [(0, 3), (0, 4), (0, 5), (1, 0), (1, 1), (1, 2)]
    assert told == ["no leader for t/1", None]
    assert await intake.check_led() is None


async def test_a_consumer_stuck_on_the_others_is_found_beside_a_lost_leader(
    consumer: MemoryConsumer, intake: Intake
) -> None:
    """Its partition is named; what can be read and is not is judged by itself."""
    await intake.on_partitions_assigned([ONE, TWO])
    for ticket, _ in await intake.poll(100, 0):
        intake.complete(ticket)
    consumer.led_by_nobody = {TWO}
    assert await intake.check_led() == "no leader for t/1"
    now = 0.0
    told: list[str | None] = []
    watchdog = Progress(KafkaSection(stall_s=60), "p", told.append, lambda: now)
    while now < 60:
        now += 20
        await watchdog.check(intake.window.in_flight, intake.waiting)
    now += 1
    with pytest.raises(Stop, match="lag 7 and no progress"):
        await watchdog.check(intake.window.in_flight, intake.waiting)
    assert set(told) == {None}, "the broker answers"


async def test_what_has_no_leader_is_no_work_left_undone(
    consumer: MemoryConsumer, intake: Intake
) -> None:
    """Neither where the others are read to their ends, nor where there are no others."""
    await intake.on_partitions_assigned([ONE, TWO])
    for _ in range(4):
        for ticket, _ in await intake.poll(100, 0):
            intake.complete(ticket)
    consumer.logs[TWO] = 20
    consumer.led_by_nobody = {TWO}
    assert await intake.waiting() is None
    consumer.led_by_nobody = {ONE, TWO}
    with pytest.raises(LeaderNotAvailableError, match="no leader for t/0, t/1"):
        await intake.waiting()


async def test_no_partition_with_a_leader_is_waited_for_without_asking(
    consumer: MemoryConsumer, intake: Intake
) -> None:
    """And what was said is taken back where the partitions go."""
    told: list[str | None] = []
    intake._positions._on_pause = told.append
    consumer.led_by_nobody = {ONE, TWO}
    await intake.on_partitions_assigned([ONE, TWO])
    assert await offsets(intake) == []
    assert intake.window.positions() == ()
    await intake.on_partitions_revoked([ONE, TWO])
    assert told == ["no leader for t/0, t/1", None]


def lost() -> float:
    name = "assay_retention_overrun_records_total"
    return REGISTRY.get_sample_value(name, {"pipeline": "p"}) or 0.0


async def test_commits_follow_completions(
    intake: Intake, consumer: MemoryConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No timer stands between a completion and its commit; two of them are apart by the
    interval, and the engine is told of each."""
    from assay_runtime import committer

    monkeypatch.setattr(committer, "_LOOK_S", 60.0)
    told: list[int] = []
    intake.commit_promptly(0.0, lambda: told.append(len(consumer.commits)))
    await intake.on_partitions_assigned([ONE])
    tickets = [ticket for ticket, _ in await intake.poll(100, 0)]
    commits = asyncio.create_task(intake.commit_regularly())
    for number, ticket in enumerate(tickets, 1):
        intake.complete(ticket)
        async with asyncio.timeout(5):
            while told != list(range(1, number + 1)):
                await asyncio.sleep(0)
    assert consumer.commits == [{ONE: 1}, {ONE: 2}, {ONE: 3}]
    commits.cancel()


async def test_a_refused_commit_is_tried_again(
    intake: Intake, consumer: MemoryConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else need happen for it, and not in a hot loop."""
    from assay_runtime import committer

    monkeypatch.setattr(committer, "_LOOK_S", 60.0)
    monkeypatch.setattr(committer, "_RETRY_S", 0.01)
    await intake.on_partitions_assigned([ONE])
    ticket, _ = (await intake.poll(100, 0))[0]
    refusals = [CommitFailedError(), CommitFailedError()]
    works = consumer.commit

    async def commit(offsets: Any) -> None:
        if refusals:
            raise refusals.pop()
        await works(offsets)

    monkeypatch.setattr(consumer, "commit", commit)
    commits = asyncio.create_task(intake.commit_regularly())
    intake.complete(ticket)
    async with asyncio.timeout(5):
        while not consumer.commits:
            await asyncio.sleep(0.001)
    assert intake.window.uncommitted == 0
    commits.cancel()


async def test_out_of_range_keeps_what_is_in_flight(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """The loss is counted from what was read, and the records in flight still hold the mark."""
    await intake.on_partitions_assigned([ONE])
    tickets = [ticket for ticket, _ in await intake.poll(100, 0)]
    consumer.low[ONE] = 7
    assert await offsets(intake) == []
    assert await offsets(intake) == [(0, 7), (0, 8), (0, 9)]
    assert intake.window.watermark(Position("t", 0)) == 0
    for ticket in tickets:
        intake.complete(ticket)
    assert intake.window.watermark(Position("t", 0)) == 7


async def test_a_closed_intake_admits_nothing(intake: Intake, consumer: MemoryConsumer) -> None:
    """A poll that is under way at SIGTERM ends empty; what it took is not committed."""
    await intake.on_partitions_assigned([ONE])
    assert await offsets(intake) == [(0, 0), (0, 1), (0, 2)]
    poll = asyncio.create_task(intake.poll(100, 0))
    await asyncio.sleep(0)
    intake.close()
    assert await poll == []
    assert intake.window.next_offset(Position("t", 0)) == 3


async def test_a_log_that_is_shorter_than_what_was_read(
    intake: Intake, consumer: MemoryConsumer
) -> None:
    """A topic made anew: asked three times, since a broker just back may not know its end, then
    read from its start."""
    consumer.group = {ONE: 50}
    consumer.assigned = {ONE}
    await intake.on_partitions_assigned([ONE])
    polls = [await offsets(intake) for _ in range(3)]
    assert polls == [[], [], [(0, 0), (0, 1), (0, 2)]]
    consumer.commits.clear()
    await intake._committer.commit(consumer)
    assert consumer.commits == [{ONE: 0}]


async def test_a_commit_that_hangs_is_given_up(
    intake: Intake, consumer: MemoryConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka repeats a commit for ever while the coordinator is away."""
    from assay_runtime import committer

    monkeypatch.setattr(committer, "_PATIENCE_S", 0.01)
    await intake.on_partitions_assigned([ONE])
    await offsets(intake)

    async def hang(offsets: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(consumer, "commit", hang)
    await intake.on_partitions_revoked([ONE])
    assert intake.window.positions() == ()


@pytest.mark.parametrize("ending", ["stop", "revocation"])
async def test_the_last_commit_is_tried_twice(
    intake: Intake, consumer: MemoryConsumer, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """X.2: the broker's answer may be there while the process was not; what is finished is not
    handled again for that."""
    from assay_runtime import committer

    monkeypatch.setattr(committer, "_PATIENCE_S", 0.01)
    await intake.on_partitions_assigned([ONE])
    for ticket, _ in await intake.poll(100, 0):
        intake.complete(ticket)
    intake._consumer = consumer
    works, tries = consumer.commit, [None]

    async def commit(offsets: Any) -> None:
        if tries:
            tries.pop()
            await asyncio.Event().wait()
        await works(offsets)

    monkeypatch.setattr(consumer, "commit", commit)
    with structlog.testing.capture_logs() as logs:
        await (intake.stop() if ending == "stop" else intake.on_partitions_revoked([ONE]))
    assert consumer.commits == [{ONE: 3}]
    assert "finished_not_committed" not in [entry["event"] for entry in logs]


@pytest.mark.parametrize("ending", ["stop", "revocation"])
async def test_what_stays_uncommitted_is_said(
    intake: Intake, consumer: MemoryConsumer, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """How many will be handled again, as an error; a record that is not finished is none."""
    await intake.on_partitions_assigned([ONE])
    for ticket, _ in (await intake.poll(100, 0))[:2]:
        intake.complete(ticket)
    intake._consumer = consumer

    async def refuse(offsets: Any) -> None:
        raise CommitFailedError

    monkeypatch.setattr(consumer, "commit", refuse)
    with structlog.testing.capture_logs() as logs:
        await (intake.stop() if ending == "stop" else intake.on_partitions_revoked([ONE]))
    said = [(e["log_level"], e["records"]) for e in logs if e["event"] == "finished_not_committed"]
    assert said == [("error", 2)]
    assert intake.window.positions() == ()


@pytest.mark.parametrize(
    ("kept", "group", "start"), [(None, 5, 0), (5, None, 0), (5, 3, 3), (3, 5, 3)]
)
async def test_a_sink_goes_on_where_store_and_group_both_have_been(
    consumer: MemoryConsumer, kept: int | None, group: int | None, start: int
) -> None:
    """A backup older than a partition's first record has no position; a topic that was made anew
    has no committed offset, and what the store says is of the log before."""

    store = SinkStore({} if kept is None else {Position("t", 0): kept})
    intake = sink(consumer, store, "stop")
    consumer.group = {} if group is None else {ONE: group}
    await intake.on_partitions_assigned([ONE])
    assert (await offsets(intake))[0] == (0, start)


@pytest.mark.parametrize("group", [None, 9])
async def test_a_store_that_misses_nothing_starts_with_what_there_is(
    consumer: MemoryConsumer, group: int | None
) -> None:
    """A new one, or one from before it kept offsets: what is gone is no loss."""
    store = SinkStore({Position("t", 0): FROM_FIRST})
    intake = sink(consumer, store, "stop")
    consumer.low[ONE], consumer.logs[ONE] = 5, 20
    consumer.group = {} if group is None else {ONE: group}
    before = lost()
    await intake.on_partitions_assigned([ONE])
    assert (await offsets(intake))[0] == (0, 5)
    assert lost() == before
    assert store.kept == {Position("t", 0): FROM_FIRST}


async def test_the_store_of_positions_may_be_away(consumer: MemoryConsumer) -> None:
    """Pause is waited out, aloud, instead of ending the process."""
    said: list[str | None] = []
    store = SinkStore({Position("t", 0): 4}, away=1)
    intake = sink(consumer, store, "stop", on_pause=said.append)
    consumer.group = {ONE: 9}
    await intake.on_partitions_assigned([ONE])
    assert await offsets(intake) == []
    assert await offsets(intake) == [(0, 4), (0, 5), (0, 6)]
    assert said == ["store: away", None]
