"""The single-node Apache Kafka that tests and development run on (DESIGN §8)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError

from assay.topics import catalogue
from assay_runtime.topic_admin import TopicSpec, ensure_topics
from deploy.kafka import __main__ as command
from deploy.kafka import jars
from deploy.kafka.broker import Broker, PortTaken
from deploy.kafka.probe import cluster_behind
from deploy.loopback_ports import free_port, is_free
from deploy.owned_process import MissingTool, ServerError, start_mark

TOPIC = TopicSpec("broker.test", 3, 1)


async def produce(bootstrap: str, values: list[bytes]) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, max_request_size=8_388_608
    )
    await producer.start()
    try:
        for future in [await producer.send(TOPIC.name, value) for value in values]:
            await future
    finally:
        await producer.stop()


async def read_all(bootstrap: str) -> list[bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partitions = [TopicPartition(TOPIC.name, n) for n in range(TOPIC.partitions)]
        consumer.assign(partitions)
        end = await consumer.end_offsets(partitions)
        found: list[bytes] = []
        async with asyncio.timeout(20):
            while len(found) < sum(end.values()):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [record.value for record in records]
        return found
    finally:
        await consumer.stop()


async def test_acknowledged_records_survive_kill_and_restart(disposable_broker: Broker) -> None:
    """Issue item 6: a record confirmed before kill -9 is there afterwards, on the same address."""
    broker = disposable_broker
    where = broker.bootstrap
    await ensure_topics(where, [TOPIC])
    before = [b"before %d" % n for n in range(200)]
    await produce(where, before)
    broker.kill()
    assert not broker.running
    assert is_free(broker.port)
    await asyncio.to_thread(broker.start)
    assert broker.bootstrap == where
    await produce(where, [b"after"])
    await asyncio.to_thread(broker.restart)
    assert sorted(await read_all(where)) == sorted([*before, b"after"])


async def test_records_near_the_limit_pass(kafka_broker: Broker) -> None:
    """Issue item 2: wallet records reach megabytes on the topics; 7 MiB go in and out."""
    await ensure_topics(kafka_broker.bootstrap, [TOPIC])
    record = os.urandom(7 * 1024 * 1024)
    await produce(kafka_broker.bootstrap, [record])
    assert record in await read_all(kafka_broker.bootstrap)


async def test_no_topic_appears_by_itself(kafka_broker: Broker) -> None:
    """DESIGN §1: topics come from topics.toml only, so a misspelt one is an error."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka_broker.bootstrap, request_timeout_ms=2_000)
    await producer.start()
    try:
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send_and_wait("misspelt", b"x")
    finally:
        await producer.stop()


def test_pause_leaves_the_port_open_and_unanswered(disposable_broker: Broker) -> None:
    """A stalled broker for fault tests: connections succeed, answers do not come."""
    broker = disposable_broker
    broker.pause()
    assert broker.running
    # On a busy machine its threads are stopped one after the other.
    deadline = time.monotonic() + 20
    while broker.answering:
        assert time.monotonic() < deadline
    with socket.create_connection(("127.0.0.1", broker.port), timeout=2):
        pass
    broker.resume()
    deadline = time.monotonic() + 20
    while not broker.answering:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    broker.pause()
    broker.stop()
    assert not broker.running


def test_two_brokers_side_by_side(kafka_broker: Broker, disposable_broker: Broker) -> None:
    """Each answers for its own cluster on its own port."""
    first, second = (cluster_behind(b.port) for b in (kafka_broker, disposable_broker))
    assert first
    assert second
    assert first != second


def test_a_given_port_of_a_stranger_is_refused(kafka_broker: Broker, tmp_path: Path) -> None:
    """Also when the stranger is a healthy broker: nothing is started, nothing is written on it."""
    intruder = Broker(tmp_path / "data", kafka_broker.port)
    with pytest.raises(PortTaken, match=str(kafka_broker.port)):
        intruder.start()
    assert not intruder.running
    assert kafka_broker.answering


def test_a_record_of_another_process_is_not_ours(tmp_path: Path) -> None:
    """A pid used again after a reboot is not signalled: its start mark differs."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        broker = Broker(tmp_path)
        for started in ("another start", None):
            broker.process.record.write_text(json.dumps({"pid": stranger.pid, "started": started}))
            assert not broker.running
            broker.stop()
            broker.kill()
            with pytest.raises(ServerError):
                broker.pause()
        assert stranger.poll() is None
        stranger.communicate(b"\n")


def test_up_leaves_a_taken_port_alone(
    tmp_path: Path, kafka_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """`up` says who is in the way, takes another port; `down` stops ours and no other."""
    data, taken = tmp_path / "data", kafka_broker.port
    arguments = ["--data", str(data), "--port", str(taken), "--json"]
    try:
        assert command.main(["up", *arguments]) == 0
        said = capsys.readouterr()
        state = json.loads(said.out)
        assert f"port {taken} on 127.0.0.1 is taken by another program" in said.err
        assert state["answering"]
        assert state["bootstrap"] != kafka_broker.bootstrap
        assert command.main(["up", "--data", str(data)]) == 0
        assert f"running already: {state['bootstrap']}" in capsys.readouterr().out
    finally:
        assert command.main(["down", *arguments]) == 0
    assert start_mark(state["pid"]) is None
    assert kafka_broker.answering
    assert command.main(["down", "--data", str(data), "--port", str(taken)]) == 0
    assert f"port {taken} is another program's" in capsys.readouterr().out
    assert kafka_broker.answering


def test_status_names_a_broker_that_is_not_ours(
    tmp_path: Path, kafka_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status` fails for a port where only somebody else's broker answers."""
    arguments = ["status", "--data", str(tmp_path), "--port", str(kafka_broker.port)]
    assert command.main(arguments) == 1
    assert f"not ours answers on port {kafka_broker.port}" in capsys.readouterr().out


def test_topics_on_a_broker_of_somebody_else(
    disposable_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of the catalogue's, once; what is there is left alone, and its count is taken over."""
    where = ["topics", "--bootstrap", disposable_broker.bootstrap, "--json"]
    wanted = {topic.name for topic in catalogue().on_broker()}
    assert command.main([*where, "--partitions", "2"]) == 0
    assert set(json.loads(capsys.readouterr().out)["created"]) == wanted
    assert command.main(where) == 0
    assert json.loads(capsys.readouterr().out) == {"created": []}


@pytest.mark.parametrize("arguments", [["topics"], ["up", "--bootstrap", "h:1"]])
def test_a_bootstrap_is_for_topics(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2


def test_topics_where_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """One line and exit status 1."""
    assert command.main(["topics", "--bootstrap", f"127.0.0.1:{free_port()}"]) == 1
    assert capsys.readouterr().err.startswith("error: no Kafka answers at 127.0.0.1:")


@pytest.mark.kafka
def test_a_killed_program_takes_its_broker_along(tmp_path: Path, kafka_broker: Broker) -> None:
    """A run that is killed with -9 leaves no broker behind (Linux)."""
    program = (
        "import sys, time; from pathlib import Path; from deploy.kafka.broker import Broker\n"
        "b = Broker(Path(sys.argv[1]), dies_with_parent=True); b.start()\n"
        "print(b.process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE
    ) as run:
        assert run.stdout
        pid = int(run.stdout.readline())
        assert start_mark(pid)
        run.send_signal(signal.SIGKILL)
    try:
        deadline = time.monotonic() + 10
        while start_mark(pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        Broker(tmp_path).kill()


def test_a_broken_start_says_why_and_leaves_nothing(tmp_path: Path, kafka_broker: Broker) -> None:
    """The reason is in the error's one line; the process is gone."""
    broker = Broker(tmp_path)
    broker.start()
    broker.stop()
    (tmp_path / "log" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=7\n")
    with pytest.raises(ServerError, match="ended while starting") as caught:
        broker.start()
    assert "\n" not in str(caught.value)
    assert not broker.running


def test_missing_maven_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to run."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match=r"^Maven is missing.*apt-get install maven`$"):
        jars.fetch(tmp_path)


def test_a_stranger_that_is_no_broker_is_no_cluster() -> None:
    """Rubbish, silence and a closed port are all "no broker"."""
    assert cluster_behind(free_port()) is None
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert cluster_behind(silent.getsockname()[1], timeout_s=0.2) is None
    rubbish = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]
    port = free_port()
    with subprocess.Popen([*rubbish, str(port)], stderr=subprocess.DEVNULL) as web:
        deadline = time.monotonic() + 10
        while is_free(port):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert cluster_behind(port) is None
        web.terminate()
