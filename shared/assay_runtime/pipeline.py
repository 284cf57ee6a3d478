"""A pipeline: topics in, a handler, topics out; and the parts that run it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import structlog
from aiokafka.errors import KafkaError

from assay_runtime.batch import BatchEngine
from assay_runtime.dead_letters import DeadLetterLimit
from assay_runtime.health import Health
from assay_runtime.intake import Intake
from assay_runtime.lane import LaneEngine
from assay_runtime.progress import Progress
from assay_runtime.publisher import Publisher
from assay_runtime.records import Decoder
from assay_runtime.retries import Retries, original, retried_only, retry_topics
from assay_runtime.retry_intake import RetryIntake
from assay_runtime.settings import KafkaSection
from assay_runtime.stage import Handler, Stage
from assay_runtime.starting import StoredPositions

log = structlog.get_logger()
T = TypeVar("T")

_WATCH_S = 2.0


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What a service's `app.py` declares.

    `first` topics are read before the others (lane engine). `dead_letter_limit` is off where
    anyone may write. A sink sets `keeps_dead_letters` False: it cannot fail on content. One that
    `loses_nothing` ends the process with what it cannot keep, and reads it again.
    `retries` is how many retry topics each of its topics has: a record that the handler postpones
    goes through them before it is dead-lettered.
    `waiting` says what a handler waits for in place (None: nothing), so that readiness goes off
    and the watchdog does not take the wait for a stall. `max_records` bounds a batch: of light
    records a third of the default costs a tenth more, and more than the default saves nothing
    (tests/bench, five hops).
    """

    name: str
    topics: tuple[str, ...]
    decode: Decoder
    handler: Handler
    engine: Literal["batch", "lane"] = "batch"
    max_records: int = 1_500
    slots: int = 16
    first: frozenset[str] = frozenset()
    dead_letter_limit: bool = True
    keeps_dead_letters: bool = True
    loses_nothing: bool = False
    retries: int = 0
    stored_positions: StoredPositions | None = None
    waiting: Callable[[], str | None] | None = None


def runners(service: str, pipeline: Pipeline, kafka: KafkaSection, health: Health) -> list[Runner]:
    """The pipeline's runner and, where it has retries, the one that reads what was postponed.

    That one has a group of its own and handles records side by side whatever the engine: what is
    tried again may be overtaken in any case. It reads all tiers, whatever the settings use now:
    what an earlier configuration or `assay dlq replay` put there must not lie there for ever.
    """
    found = [Runner(service, pipeline, kafka, health)]
    if pipeline.retries:
        again = replace(
            pipeline,
            name=f"{pipeline.name}.retry",
            topics=retry_topics(pipeline.topics, service, pipeline.retries),
            decode=retried_only(pipeline.decode),
            engine="lane",
            first=frozenset(),
            stored_positions=None,
        )
        found.append(Runner(service, again, kafka, health, reads_retries=True))
    return found


class Runner:
    """One running pipeline: consumer group `assay.<name>`, a producer, an engine."""

    def __init__(
        self,
        service: str,
        pipeline: Pipeline,
        kafka: KafkaSection,
        health: Health,
        *,
        reads_retries: bool = False,
    ) -> None:
        self.name = pipeline.name
        self._waiting = pipeline.waiting
        self._health = health
        self._kafka = kafka
        client_id = f"{pipeline.name}@{socket.gethostname()}"
        self._publisher = Publisher(
            kafka, client_id, pipeline.name, whole_batches=pipeline.engine == "batch"
        )
        self._stage = Stage(
            pipeline=pipeline.name,
            service=service,
            decode=pipeline.decode,
            handler=pipeline.handler,
            publisher=self._publisher,
            limit=DeadLetterLimit.of(kafka, on=pipeline.dead_letter_limit),
            keeps_dead_letters=pipeline.keeps_dead_letters,
            loses_nothing=pipeline.loses_nothing,
            retries=(
                Retries(service, pipeline.retries, kafka.retry_delays_s)
                if pipeline.retries
                else None
            ),
            unwrap=original if reads_retries else None,
            on_pause=self._paused,
        )
        self._intake = (RetryIntake if reads_retries else Intake)(
            kafka,
            pipeline=pipeline.name,
            group=f"assay.{pipeline.name}",
            topics=pipeline.topics,
            client_id=client_id,
            drain=lambda seconds: self._engine.drain(seconds),
            stored_positions=pipeline.stored_positions,
            on_pause=lambda reason: self._paused(reason, ".positions"),
        )
        self._progress = Progress(
            kafka, pipeline.name, lambda reason: health.note(f"{pipeline.name}.broker", reason)
        )
        self._engine: BatchEngine | LaneEngine
        if pipeline.engine == "batch":
            self._engine = BatchEngine(
                pipeline.name, self._intake, self._stage, pipeline.max_records
            )
        else:
            self._engine = LaneEngine(
                pipeline.name, self._intake, self._stage, pipeline.slots, pipeline.first
            )
        checks = {
            "group": self._intake.check_assigned,
            "leaders": self._intake.check_led,
            "sending": self._publisher.check_confirmed,
        }
        health.add_checks({f"{pipeline.name}.{what}": check for what, check in checks.items()})

    @property
    def holds_partitions(self) -> bool:
        """Whether the group gave it partitions that it reads from."""
        return bool(self._intake.window.positions())

    async def start(self) -> None:
        """Connect; a broker that is not there is waited for, and said so."""
        await self._connected(self._publisher.start)
        await self._connected(self._intake.start)

    async def run(self) -> None:
        """Until `stop`, or until the engine, the committer or the watchdog gives up."""
        tasks = [
            asyncio.create_task(work, name=f"{self.name}.{what}")
            for what, work in (
                ("engine", self._engine.run()),
                ("commits", self._intake.commit_regularly()),
                ("watchdog", self._watch()),
                ("lag", self._intake.measure_lag()),
            )
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self, drain_s: float) -> None:
        """Stop intake, drain, commit, leave the group, flush and close the producer.

        `run` goes on meanwhile or has ended; what was never started is passed over.
        """
        self._intake.close()
        await self._engine.stop(drain_s)
        await self._intake.stop()
        await self._publisher.stop()

    async def _watch(self) -> None:
        done = -1
        while True:
            await asyncio.sleep(_WATCH_S)
            if self._waiting is not None:
                reason = self._waiting()
                self._health.note(f"{self.name}.waiting", reason)
                if reason is not None:
                    self._progress.note()
            if self._intake.completed != done:
                done = self._intake.completed
                self._progress.note()
            await self._progress.check(self._intake.window.in_flight, self._intake.waiting)

    def _paused(self, reason: str | None, what: str = "") -> None:
        self._health.note(self.name + what, reason)
        self._progress.note()

    async def _connected(self, connect: Callable[[], Awaitable[T]]) -> T:
        wait = 0.5
        while True:
            try:
                connected = await connect()
                self._health.note(self.name, None)
                return connected
            except (KafkaError, OSError) as error:
                problem = f"broker at {self._kafka.bootstrap} is not reachable: {error}"
                self._health.note(self.name, problem)
                log.warning("waiting_for_broker", bootstrap=self._kafka.bootstrap, error=str(error))
                await asyncio.sleep(wait)
                wait = min(wait * 2, 5.0)
