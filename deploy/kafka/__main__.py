"""`python -m deploy.kafka`: a broker that outlives the command, and the topics on anybody's."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiokafka.errors import KafkaError

from assay_runtime.topic_admin import TopicAdminError, ensure_topics
from deploy.kafka import jars
from deploy.kafka.broker import Broker, PortTaken
from deploy.kafka.catalogue_topics import create_missing, specs
from deploy.kafka.probe import cluster_behind
from deploy.loopback_ports import is_free
from deploy.owned_process import ServerError

DEFAULT_PORT = 9092


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _report(broker: Broker, as_json: bool, text: str) -> None:
    if not as_json:
        print(text)
        return
    running = broker.running
    state: dict[str, Any] = {
        "running": running,
        "answering": running and broker.answering,
        "bootstrap": broker.bootstrap if running else None,
        "pid": broker.process.pid,
        "data": str(broker.data_dir),
        "log": str(broker.process.log),
    }
    print(json.dumps(state))


def up(data: Path, port: int | None, as_json: bool) -> int:
    """Start our broker, on another port when somebody else has the wanted one."""
    broker = Broker(data, port or DEFAULT_PORT)
    if broker.running:
        broker.start()
        if port not in (None, broker.port):
            _say(f"our broker already runs on port {broker.port}, not on {port}")
        _report(broker, as_json, f"running already: {broker.bootstrap}")
        return 0
    started = time.monotonic()
    try:
        broker.start()
    except PortTaken as taken:
        broker = Broker(data)
        broker.start()
        _say(f"{taken}, left alone; using port {broker.port}")
    report = asyncio.run(ensure_topics(broker.bootstrap, specs(replication=1)))
    took = time.monotonic() - started
    _report(
        broker,
        as_json,
        f"Apache Kafka {jars.kafka_version()} ready after {took:.1f} s: {broker.bootstrap}\n"
        f"  {len(report.created)} topics created, {len(report.present)} were there\n"
        f"  log {broker.process.log}",
    )
    return 0


def down(data: Path, port: int | None, as_json: bool) -> int:
    """Stop our broker; a broker somebody else runs is only mentioned."""
    broker = Broker(data)
    if broker.running:
        where = broker.bootstrap
        broker.stop()
        _report(broker, as_json, f"stopped {where}; its data stay in {broker.data_dir}")
        return 0
    stranger = port or DEFAULT_PORT
    note = "" if is_free(stranger) else f" (port {stranger} is another program's, left alone)"
    _report(broker, as_json, f"no broker of ours runs{note}")
    return 0


def status(data: Path, port: int | None, as_json: bool) -> int:
    """Exit status 0 when our broker answers, 1 otherwise."""
    broker = Broker(data)
    if broker.running:
        word = "answers" if broker.answering else "runs but does not answer"
        _report(broker, as_json, f"{broker.bootstrap} {word}, pid {broker.process.pid}")
        return 0 if broker.answering else 1
    stranger = port or DEFAULT_PORT
    other = cluster_behind(stranger)
    note = f"; a broker that is not ours answers on port {stranger}" if other else ""
    _report(broker, as_json, f"no broker of ours runs{note}")
    return 1


def fetch(data: Path, port: int | None, as_json: bool) -> int:
    """Only bring the jars."""
    libs = jars.fetch()
    print(json.dumps({"libs": str(libs)}) if as_json else libs)
    return 0


def topics(bootstrap: str, partitions: int | None, replication: int | None, as_json: bool) -> int:
    """Create what a broker lacks of the catalogue's topics; what is there is left as it is."""
    try:
        report = asyncio.run(create_missing(bootstrap, partitions, replication))
    except (KafkaError, OSError) as error:
        raise TopicAdminError(f"no Kafka answers at {bootstrap}: {error}") from error
    if as_json:
        print(json.dumps({"created": report.created}))
        return 0
    for name in report.created:
        print(name)
    _say(f"{len(report.created)} topics created on {bootstrap}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; a failure is one line on standard error and exit status 1."""
    commands = {"up": up, "down": down, "status": status, "fetch": fetch}
    parser = argparse.ArgumentParser(prog="python -m deploy.kafka", description=__doc__)
    parser.add_argument(
        "command",
        choices=(*commands, "topics"),
        help="up, down, status: a broker on this machine; fetch: only its jars; topics: create "
        "what the broker at --bootstrap lacks",
    )
    parser.add_argument("--port", type=int, help=f"default {DEFAULT_PORT} if it is free")
    parser.add_argument("--data", type=Path, default=jars.BUILD / "data", help="data directory")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="with topics: the broker")
    parser.add_argument(
        "--partitions", type=int, help="with topics: of each; default: as those there, else 12"
    )
    parser.add_argument(
        "--replication", type=int, help="with topics: of each; default: 3, or fewer brokers"
    )
    asked = parser.parse_args(arguments)
    if (asked.command == "topics") != (asked.bootstrap is not None):
        parser.error("topics needs --bootstrap, and nothing else does")
    try:
        if asked.command == "topics":
            return topics(asked.bootstrap, asked.partitions, asked.replication, asked.json)
        return commands[asked.command](asked.data, asked.port, asked.json)
    except (ServerError, TopicAdminError) as error:
        _say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _say("interrupted")
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
