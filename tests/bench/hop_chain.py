"""Five hop processes between six topics, fed and watched from outside."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.owned_process import OwnedProcess
from tests.bench.chain_events import Row
from tests.bench.process_usage import Usage, usage

REPO = Path(__file__).resolve().parents[2]
HOPS = 5
_POLL_S = 0.01
_JOINING_POLL_S = 0.2


class ChainFailed(RuntimeError):
    """A hop ended, or nothing comes out any more; the message holds its last words."""


class HopChain:
    """A context manager: topics made, processes started on entry and killed on exit.

    `command` is run with bootstrap, source, sink and group behind it, `replicas` times per hop;
    with `idle` not before `launch`.
    """

    def __init__(
        self,
        bootstrap: str,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        partitions: int = 4,
        hops: int = HOPS,
        replicas: int = 1,
        idle: bool = False,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.topics = [f"bench.{name}.{number}" for number in range(hops + 1)]
        self._bootstrap = bootstrap
        self._command = list(command)
        self._partitions = partitions
        self._replicas = replicas
        self._idle = idle
        self._environment = {
            **os.environ,
            "PYTHONPATH": f"{REPO}:{REPO / 'shared'}",
            **(environment or {}),
        }
        # Each hop's group bears the name of the topic that the hop writes.
        self._groups = [f"assay.{sink}" for sink in self.topics[1:]]
        folder.mkdir(parents=True, exist_ok=True)
        self._processes = [
            OwnedProcess(folder / f"{name}-{hop}-{copy}.pid", folder / f"{name}-{hop}-{copy}.log")
            for hop in range(hops)
            for copy in range(replicas)
        ]
        # librdkafka would say on stderr that a broker which has ended cannot be reached.
        quiet = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer(
            {
                **quiet,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 1_000_000,
                "compression.type": "zstd",
                "queue.buffering.max.messages": 2_000_000,
                "queue.buffering.max.kbytes": 2_000_000,
            }
        )
        self._watcher = Consumer({**quiet, "group.id": f"{name}.watch"})
        self._admin = AdminClient(quiet)

    def __enter__(self) -> HopChain:
        made = self._admin.create_topics([NewTopic(t, self._partitions, 1) for t in self.topics])
        for future in made.values():
            future.result()
        if not self._idle:
            try:
                self.launch()
            except BaseException:
                self._end()
                raise
        return self

    def launch(self) -> None:
        """Start the processes; they end with this one."""
        for number, process in enumerate(self._processes):
            hop = number // self._replicas
            source, sink = self.topics[hop], self.topics[hop + 1]
            process.launch(
                [*self._command, self._bootstrap, source, sink, self._groups[hop]],
                env=self._environment,
                parent_death=signal.SIGKILL,
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
        self._watcher.close()
        for future in self._admin.delete_topics(self.topics).values():
            future.result()

    def feed(self, rows: Sequence[Row]) -> None:
        """Publish the rows as fast as the broker takes them."""
        for row in rows:
            self._producer.produce(
                self.topics[0], value=row.value, key=row.key, headers=row.headers
            )
        self._producer.flush()

    def await_members(self, patience_s: float = 60) -> None:
        """Wait until every process has partitions: one that joins while others are at work has
        them repeat what they had not committed."""
        until = time.monotonic() + patience_s
        while (ready := sum(map(self._members, self._groups))) < len(self._processes):
            if time.monotonic() > until or self._ended():
                raise ChainFailed(
                    f"{ready} of {len(self._processes)} processes have partitions: {self._words()}"
                )
            time.sleep(_JOINING_POLL_S)

    def _members(self, group: str) -> int:
        try:
            found = self._admin.describe_consumer_groups([group])[group].result()
        except KafkaException:
            return 0  # nobody has joined it yet
        if found.state != ConsumerGroupState.STABLE:
            return 0
        return sum(1 for member in found.members if member.assignment.topic_partitions)

    def _ended(self) -> bool:
        return any(process.pid is None for process in self._processes)

    def _words(self) -> list[str]:
        return [p.last_words(("Error", "error")) for p in self._processes if p.pid is None]

    def await_output(self, total: int, patience_s: float = 60) -> float:
        """Wait until `total` records are on the last topic; the monotonic time of that."""
        changed, before = time.monotonic(), -1
        while True:
            count = self.count(self.topics[-1])
            now = time.monotonic()
            if count >= total:
                return now
            if count != before:
                before, changed = count, now
            if now - changed > patience_s or self._ended():
                raise ChainFailed(f"{count} of {total} came out: {self._words()}")
            time.sleep(_POLL_S)

    def count(self, topic: str) -> int:
        """Records ever written to the topic."""
        try:
            return sum(
                self._watcher.get_watermark_offsets(TopicPartition(topic, n), timeout=5)[1]
                for n in range(self._partitions)
            )
        except KafkaException:
            return -1

    def usage(self) -> list[Usage]:
        """Of the hop processes, and of nothing else."""
        return [usage(process.pid) for process in self._processes if process.pid is not None]

    def cpu_s(self) -> float:
        """CPU seconds of all hop processes so far."""
        return sum(found.cpu_s for found in self.usage())


def python_module(module: str, python: str = sys.executable) -> list[str]:
    """The command that runs a module."""
    return [python, "-m", module]
