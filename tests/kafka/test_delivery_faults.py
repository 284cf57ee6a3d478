"""Processes and brokers that die in the middle of the work: nothing is lost (X.2, DESIGN §3)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY

from assay_runtime.failures import Stop
from assay_runtime.health import Health
from assay_runtime.pipeline import Runner
from assay_runtime.service import READY_PREFIX
from deploy.dev.broker import EmbeddedBroker
from deploy.kafka.broker import Broker
from deploy.loopback_ports import free_port
from tests.kafka import delivery_rig as rig

pytestmark = pytest.mark.fault
ENGINES = pytest.mark.parametrize("engine", ["batch", "lane"])


@pytest.fixture
def names() -> rig.Names:
    return rig.Names()


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
async def bootstrap(request: pytest.FixtureRequest, names: rig.Names) -> AsyncIterator[str]:
    """A broker that has the test's topics."""
    if request.param == "embedded":
        with EmbeddedBroker([(name, rig.PARTITIONS) for name in names.all]) as broker:
            yield broker.bootstrap
    else:
        broker = request.getfixturevalue("kafka_broker")
        await rig.create(broker.bootstrap, names)
        yield broker.bootstrap


@contextmanager
def process(
    bootstrap: str, names: rig.Names, tmp_path: Path, **settings: object
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A service process and its log; killed at the end if it still runs."""
    environment = {
        **os.environ,
        "ASSAY_KAFKA__BOOTSTRAP": bootstrap,
        "ASSAY_KAFKA__SESSION_TIMEOUT_MS": "6000",
        "ASSAY_KAFKA__FETCH_WAIT_MS": "20",
        "ASSAY_RIG__PIPELINE": names.pipeline,
        "ASSAY_RIG__SOURCE": names.source,
        "ASSAY_RIG__SINK": names.sink,
        **{f"ASSAY_{key.upper()}": str(value) for key, value in settings.items()},
    }
    log = tmp_path / f"{len(list(tmp_path.iterdir()))}.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.kafka.runner_process"],
            env=environment,
            stdout=output,
            stderr=output,
            cwd=Path(__file__).parents[2],
        )
    try:
        yield child, log
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()


async def exit_code(child: subprocess.Popen[bytes]) -> int:
    await rig.until(lambda: child.poll() is not None)
    assert child.returncode is not None
    return child.returncode


async def outputs(bootstrap: str, names: rig.Names, count: int) -> bool:
    return sum((await rig.ends(bootstrap, names.sink)).values()) >= count


async def all_committed(bootstrap: str, names: rig.Names) -> bool:
    return await rig.committed(bootstrap, names) == await rig.ends(bootstrap, names.source)


@ENGINES
async def test_kill_9_loses_nothing(
    bootstrap: str, names: rig.Names, engine: str, tmp_path: Path
) -> None:
    """Killed twice in the middle; what was in flight is repeated, in order, nothing is missing."""
    total = 2_000
    await rig.write(bootstrap, names.source, rig.rows(total, keys=50))
    settings = {"rig__engine": engine, "rig__delay_s": 0.02, "kafka__session_timeout_ms": 3_000}
    for enough in (150, 600):
        with process(bootstrap, names, tmp_path, **settings) as (child, _):
            await rig.until(lambda n=enough: outputs(bootstrap, names, n))
            child.send_signal(signal.SIGKILL)
            assert await exit_code(child) == -signal.SIGKILL
    with process(bootstrap, names, tmp_path, **settings) as (child, log):
        await rig.until(lambda: all_committed(bootstrap, names))
        child.send_signal(signal.SIGTERM)
        assert await exit_code(child) == 0, log.read_text()
    records = await rig.read(bootstrap, names.sink)
    assert rig.distinct(records) == {b"%d" % n for n in range(total)}
    assert rig.out_of_order(records) == []


async def test_kill_9_repeats_no_more_calls_than_there_are_slots(
    bootstrap: str, names: rig.Names, tmp_path: Path
) -> None:
    """Issue items 1 and 6: calls are paid. One record holds the watermark, so that most of what
    is done stands above it; over three lives a call is repeated only where it was under way."""
    total, slots, kills = 420, 16, 2
    await rig.write(bootstrap, names.source, rig.rows(total, keys=60))
    calls = tmp_path / "calls"
    settings = {
        "rig__engine": "lane", "rig__slots": slots, "rig__delay_s": 0.4, "rig__calls": calls,
        "rig__slow": '["0","1","2","3"]', "rig__slow_s": 30, "kafka__session_timeout_ms": 3_000,
    }  # fmt: skip
    for enough in (120, 240):
        with process(bootstrap, names, tmp_path, **settings) as (child, _):
            await rig.until(lambda n=enough: outputs(bootstrap, names, n))
            child.send_signal(signal.SIGKILL)
            assert await exit_code(child) == -signal.SIGKILL
    settings["rig__slow_s"] = 0.4
    with process(bootstrap, names, tmp_path, **settings) as (_, log):
        await rig.until(lambda: all_committed(bootstrap, names))
        assert "finished_earlier" in log.read_text()
    begun = Counter(calls.read_text().split())
    assert set(begun) == {str(n) for n in range(total)}
    repeated = sum(begun.values()) - total
    assert repeated <= kills * slots
    records = await rig.read(bootstrap, names.sink)
    assert rig.distinct(records) == {b"%d" % n for n in range(total)}
    assert rig.out_of_order(records) == []


@pytest.mark.parametrize("hangs", ["", "deaf", "thread"])
async def test_sigterm_ends_in_time_though_handlers_hang(
    kafka_broker: Broker, names: rig.Names, hangs: str, tmp_path: Path
) -> None:
    """Issue: SIGTERM to exit within the model's deadline and 3 s, with all slots full. The
    scorer drains for its deadline and 1 s, so 2 s remain for everything after the drain. Nothing
    that was queued is begun, and nothing that hangs is committed."""
    where, drain_s, slots = kafka_broker.bootstrap, 4, 8
    await rig.create(where, names)
    await rig.write(where, names.source, rig.rows(40, keys=40))
    calls = tmp_path / "calls"
    everything = json.dumps([str(n) for n in range(40)])
    settings = {
        "rig__engine": "lane", "rig__slots": slots, "rig__drain_s": drain_s, "rig__calls": calls,
        "rig__slow": everything, "rig__slow_s": 60, "rig__hangs": hangs,
    }  # fmt: skip
    with process(where, names, tmp_path, **settings) as (child, log):
        await rig.until(lambda: calls.exists() and len(calls.read_text().split()) == slots)
        child.send_signal(signal.SIGTERM)
        # Far below what hangs (60 s) and far above 2 s, which a busy machine does not promise.
        async with asyncio.timeout(drain_s + 12):
            assert await exit_code(child) == 0, log.read_text()
    assert len(calls.read_text().split()) == slots
    assert sum((await rig.committed(where, names)).values()) == 0


@ENGINES
async def test_sigterm_drains_commits_and_repeats_nothing(
    bootstrap: str, names: rig.Names, engine: str, tmp_path: Path
) -> None:
    """Exit 0; each record has one output over both lives. A second signal changes nothing.

    Where the machine did not let the process run for so long that the drain's time or the group's
    session was over, it says how many records are handled again; those and no others may be.
    """
    total = 1_200
    await rig.write(bootstrap, names.source, rig.rows(total, keys=50))
    settings = {"rig__engine": engine, "rig__delay_s": 0.05}
    with process(bootstrap, names, tmp_path, **settings) as (child, log):
        await rig.until(lambda: outputs(bootstrap, names, 150))
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGTERM)
        assert await exit_code(child) == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    assert "never retrieved" not in log.read_text()
    again = said_again(log)
    first = len(await rig.read(bootstrap, names.sink))
    assert first - again <= await rig.done(bootstrap, names) <= first < total, log.read_text()
    with process(bootstrap, names, tmp_path, **settings) as (_, second_log):
        await rig.until(lambda: all_committed(bootstrap, names))
    records = await rig.read(bootstrap, names.sink)
    again += said_again(second_log)
    assert total <= len(records) <= total + again, log.read_text()
    assert rig.distinct(records) == {b"%d" % n for n in range(total)}


def said_again(log: Path) -> int:
    """Records that a service has said it leaves to be handled again."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return sum(
        line["records"] for line in lines if line["event"] in ("finished_not_committed", "given_up")
    )


async def test_a_process_that_was_held_too_long_says_what_is_repeated(
    names: rig.Names, tmp_path: Path
) -> None:
    """Held for longer than the group's session, then SIGTERM: the embedded broker takes no commit
    of a member that it gave up (Apache Kafka does while the group is empty). What is finished and
    uncommitted is repeated; it is said, and it is no more than may be uncommitted at once."""
    total, slots = 1_200, 16
    settings = {"rig__engine": "lane", "rig__delay_s": 0.05, "rig__slots": slots}
    with EmbeddedBroker([(name, rig.PARTITIONS) for name in names.all]) as broker:
        where = broker.bootstrap
        await rig.write(where, names.source, rig.rows(total, keys=50))
        with process(where, names, tmp_path, **settings) as (child, log):
            await rig.until(lambda: outputs(where, names, 150))
            child.send_signal(signal.SIGSTOP)
            await asyncio.sleep(8)
            child.send_signal(signal.SIGCONT)
            child.send_signal(signal.SIGTERM)
            assert await exit_code(child) == 0, log.read_text()
        again = said_again(log)
        assert 0 < again <= 2 * slots, log.read_text()
        first = len(await rig.read(where, names.sink))
        assert first - again <= await rig.done(where, names) < first < total, log.read_text()


async def test_a_broker_that_is_absent_is_waited_for(names: rig.Names, tmp_path: Path) -> None:
    """Issue, Bad input: broker down at start, wait and say so; SIGTERM still ends it with 0."""
    address = f"127.0.0.1:{free_port()}"
    with process(address, names, tmp_path, http__port=(port := free_port())) as (child, log):
        await rig.until(lambda: "waiting_for_broker" in log.read_text())
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"http://127.0.0.1:{port}/readyz")
            assert (await client.get(f"http://127.0.0.1:{port}/livez")).status_code == 200
        assert answer.status_code == 503
        assert address in json.dumps(answer.json()["problems"])
        child.send_signal(signal.SIGTERM)
        assert await exit_code(child) == 0, log.read_text()
    assert READY_PREFIX not in log.read_text()
    assert "Traceback" not in log.read_text()


async def test_bad_settings_end_with_2(names: rig.Names, tmp_path: Path) -> None:
    """One line that names the variable, no trace."""
    with process("x:1", names, tmp_path, kafka__linger_ms="soon") as (child, log):
        assert await exit_code(child) == 2
    assert "ASSAY_KAFKA__LINGER_MS" in log.read_text()
    with process("x:1", names, tmp_path, http__host="192.0.2.1") as (child, log):
        assert await exit_code(child) == 2
    assert "ASSAY_HTTP__HOST" in log.read_text()
    assert "Traceback" not in log.read_text()


@ENGINES
async def test_broker_killed_and_back(
    disposable_broker: Broker, names: rig.Names, engine: str
) -> None:
    """Broker gone later: the same process resumes by itself, readiness off meanwhile."""
    where, total = disposable_broker.bootstrap, 1_500
    await rig.create(where, names)
    await rig.write(where, names.source, rig.rows(total, keys=50))

    async def slowly(deliveries: Sequence[Any]) -> None:
        await asyncio.sleep(0.02)

    what = rig.pipeline(names, engine, rig.forwarding(names.sink, slowly), slots=32, max_records=20)
    async with rig.running(where, what) as now:
        await rig.until(lambda: outputs(where, names, 100))
        await asyncio.to_thread(disposable_broker.kill)
        await asyncio.sleep(1)
        await asyncio.to_thread(disposable_broker.start)
        await rig.until(lambda: all_committed(where, names))
        assert not now.task.done()
    records = await rig.read(where, names.sink)
    assert rig.distinct(records) == {b"%d" % n for n in range(total)}
    assert rig.out_of_order(records) == []


async def test_a_silent_broker_turns_readiness_off(
    disposable_broker: Broker, names: rig.Names
) -> None:
    """An idle service notices too, and waits: no stall, no exit."""
    where = disposable_broker.bootstrap
    await rig.create(where, names)
    what = rig.pipeline(names, "batch", rig.forwarding(names.sink))
    async with rig.running(where, what, stall_s=1) as now:
        await rig.until(lambda: now.runner.holds_partitions)
        assert await now.health.problems() == {}
        disposable_broker.pause()
        try:
            await rig.until(lambda: _says(now.health, "does not answer"))
            await asyncio.sleep(4)
            assert not now.task.done()
        finally:
            disposable_broker.resume()
        await rig.write(where, names.source, rig.rows(5, keys=5))
        await rig.until(lambda: outputs(where, names, 5))
        await rig.until(lambda: _well(now.health))


async def _says(health: Health, text: str) -> bool:
    return text in json.dumps(await health.problems())


async def _well(health: Health) -> bool:
    return await health.problems() == {}


async def test_the_end_is_bounded_while_the_broker_is_away(
    disposable_broker: Broker, names: rig.Names, tmp_path: Path
) -> None:
    """SIGTERM with outputs that nobody confirms: exit 0 within the drain and its margins, and
    what was not confirmed is done by the next process."""
    where = disposable_broker.bootstrap
    await rig.create(where, names)
    await rig.write(where, names.source, rig.rows(100, keys=10))
    settings = {"rig__delay_s": 0.5, "rig__engine": "lane", "rig__drain_s": 1}
    with process(where, names, tmp_path, **settings) as (child, log):
        await rig.until(lambda: outputs(where, names, 10))
        disposable_broker.pause()
        try:
            await asyncio.sleep(0.5)
            child.send_signal(signal.SIGTERM)
            assert await exit_code(child) == 0, log.read_text()
        finally:
            disposable_broker.resume()
    assert "never retrieved" not in log.read_text()
    with process(where, names, tmp_path, rig__engine="lane"):
        await rig.until(lambda: all_committed(where, names))
    assert rig.distinct(await rig.read(where, names.sink)) == {b"%d" % n for n in range(100)}


def overrun(names: rig.Names) -> float:
    return REGISTRY.get_sample_value(
        "assay_retention_overrun_records_total", {"pipeline": names.pipeline}
    ) or 0  # fmt: skip


async def left_behind(where: str, names: rig.Names) -> tuple[set[bytes], int]:
    """A group that has read 200 records; of the next 200 retention removes half per partition.
    What is left of them, and how many are gone."""
    await rig.create(where, names)
    await rig.write(where, names.source, rig.rows(200, keys=20))
    what = rig.pipeline(names, "batch", rig.forwarding(names.sink))
    async with rig.running(where, what):
        await rig.until(lambda: all_committed(where, names))
    before = await rig.ends(where, names.source)
    await rig.write(where, names.source, rig.rows(200, keys=20, start=200))
    after = await rig.ends(where, names.source)
    low = {p: (before[p] + after[p]) // 2 for p in before}
    await rig.delete_before(where, names.source, low)
    left = {record.value for record in await rig.read(where, names.source)}
    return left, sum(low[p] - before[p] for p in before)


async def test_retention_overrun_stops(kafka_broker: Broker, names: rig.Names) -> None:
    """DESIGN §3: noticed, counted, and the process ends if so configured."""
    where = kafka_broker.bootstrap
    _, gone = await left_behind(where, names)
    what = rig.pipeline(names, "batch", rig.forwarding(names.sink))
    async with rig.running(where, what) as now:
        with pytest.raises(Stop, match="removed by retention"):
            await now.task
    assert 0 < overrun(names) <= gone
    assert len(await rig.read(where, names.sink)) == 200


@ENGINES
async def test_retention_overrun_goes_on(
    kafka_broker: Broker, names: rig.Names, engine: str
) -> None:
    """With overrun=continue: counted exactly once, the rest is handled, and it is committed."""
    where = kafka_broker.bootstrap
    left, gone = await left_behind(where, names)
    what = rig.pipeline(names, engine, rig.forwarding(names.sink))
    async with rig.running(where, what, overrun="continue"):
        await rig.until(lambda: all_committed(where, names))
    assert overrun(names) == gone
    assert rig.distinct(await rig.read(where, names.sink)) >= left
    async with rig.running(where, what, overrun="continue") as now:
        await rig.until(lambda: now.runner.holds_partitions)
    assert overrun(names) == gone


@pytest.mark.parametrize("choice", ["stop", "continue"])
async def test_retention_overtakes_a_running_consumer(
    kafka_broker: Broker, names: rig.Names, choice: str
) -> None:
    """OffsetOutOfRange in the middle: the same, and what is in flight stays in flight."""
    where = kafka_broker.bootstrap
    await rig.create(where, names)
    gate = asyncio.Event()
    entered = asyncio.Event()

    async def wait(deliveries: Sequence[Any]) -> None:
        entered.set()
        await gate.wait()

    # One partition; two slots and a small share, so that most of the log is not fetched yet.
    big = b"x" * 700_000
    await rig.write(where, names.source, [(b"k", b"0", [])])
    what = rig.pipeline(names, "lane", rig.forwarding(names.sink, wait), slots=1)
    async with rig.running(where, what, overrun=choice, max_request_bytes=1_048_576) as now:
        await entered.wait()
        for _ in range(5):
            await rig.write(where, names.source, [(b"k", big, [])] * 10,
                            max_request_size=2_000_000)  # fmt: skip
        await asyncio.sleep(0.5)
        ends = await rig.ends(where, names.source)
        await rig.delete_before(where, names.source, ends)
        await rig.write(where, names.source, [(b"k", b"last", [])])
        gate.set()
        if choice == "stop":
            with pytest.raises(Stop, match="removed by retention"):
                await asyncio.wait_for(now.task, rig.TIMEOUT_S)
            assert overrun(names) > 0
            return
        await rig.until(lambda: all_committed(where, names))
    values = [record.value for record in await rig.read(where, names.sink)]
    assert values[0] == b"0", "what was in flight was done"
    assert values[-1] == b"last"
    assert len(values) - 2 + overrun(names) == 50, "each record is either done or counted as lost"


async def test_a_runner_never_started_can_be_stopped(names: rig.Names) -> None:
    """Also one whose start is cancelled while the broker is away; nothing is left open."""
    what = rig.pipeline(names, "lane", rig.forwarding(names.sink))
    section = rig.kafka_section(f"127.0.0.1:{free_port()}")
    runner = Runner(rig.SERVICE, what, section, Health())
    await runner.stop(1)
    runner = Runner(rig.SERVICE, what, section, Health())
    starting = asyncio.create_task(runner.start())
    await asyncio.sleep(0.3)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await runner.stop(1)
