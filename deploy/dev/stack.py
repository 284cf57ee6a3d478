"""Starts every part of a stack, watches over it, and ends all of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import KafkaError

from assay.topics import catalogue
from assay_runtime import http
from assay_runtime.service import READY_PREFIX
from assay_runtime.settings import HttpSection
from assay_runtime.topic_admin import TopicAdminError
from deploy.dev import aggregator
from deploy.dev.broker import EmbeddedBroker, EmbeddedBrokerError
from deploy.dev.part_log import PartLog
from deploy.dev.plan import EMBEDDED_PARTITIONS, SERVICES, StackPlan
from deploy.dev.seal_key import SEALING, ensure_seal_key
from deploy.dev.unread_guard import UnreadGuard, readers
from deploy.kafka import jars
from deploy.kafka.broker import Broker
from deploy.kafka.catalogue_topics import create_missing
from deploy.owned_process import OwnedProcess, ServerError

_READY_S = 60.0
_STOP_S = 20.0
Say = Callable[[str], None]


@dataclass(slots=True)
class Part:
    """One child process of the stack and where it listens."""

    name: str
    command: list[str]
    environment: dict[str, str]
    process: OwnedProcess
    log: PartLog
    address: str = ""
    restarts: int = 0


class Stack:
    """A running stack. `addresses` is what `assay up --json` prints."""

    def __init__(self, plan: StackPlan, say: Say) -> None:
        self._plan = plan
        self._say = say
        self._embedded: EmbeddedBroker | None = None
        self._guard: asyncio.Task[None] | None = None
        self._kafka: Broker | None = None
        self._parts: dict[str, Part] = {}
        self._aggregator: tuple[http.Server, asyncio.Task[None]] | None = None
        self.bootstrap = ""
        self.aggregator_url = plan.aggregator_url or ""
        self.model_url = plan.model.url

    async def start(self) -> None:
        """Start everything and return when all of it is ready; ServerError says what is not."""
        # Full prompts and answers lie in it: for its owner only.
        self._plan.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._start_broker()
        if not self.aggregator_url:
            await self._start_aggregator()
        if self._plan.model.kind == "simulator":
            await self._start_simulator()
        log = self._plan.log_name()
        seals = ensure_seal_key(self._plan.data, os.environ)
        for service in SERVICES:
            environment = self._plan.environment(
                service,
                bootstrap=self.bootstrap,
                model_url=self.model_url,
                aggregator_url=self.aggregator_url,
                log=log,
            )
            if service in SEALING:
                environment |= seals
            self._launch(service, ["-m", f"services.{service}"], environment)
        for service in SERVICES:
            await self._ready(self._parts[service])
        await self._services_ready()

    def addresses(self, public_key: str) -> dict[str, Any]:
        return {
            "bootstrap": self.bootstrap,
            "api": self.address("ingest"),
            "evidence": self.address("evidence"),
            "public_key": public_key,
            "public_key_url": f"{self.address('signer')}/public-key",
            "topics": {topic.name: topic.name for topic in catalogue()},
            "services": {name: self._parts[name].address for name in SERVICES},
            "data": str(self._plan.data.resolve()),
            "pid": os.getpid(),
        }

    def address(self, part: str) -> str:
        return self._parts[part].address

    def pid(self, part: str) -> int | None:
        return self._parts[part].process.pid

    async def watch(self, stop: asyncio.Event) -> None:
        """Until `stop`: start again what ends (services are crash-only)."""
        while not stop.is_set():
            for part in self._parts.values():
                if part.process.pid is None:
                    part.restarts += 1
                    self._say(f"{part.name} ended ({part.log.last_words()}); starting it again")
                    await asyncio.sleep(min(0.2 * part.restarts, 5))
                    self._run(part)
                for news in part.log.news():
                    self._say(f"{part.name}: {news}")
            try:
                async with asyncio.timeout(0.5):
                    await stop.wait()
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """End every part; what does not go is killed. Says what cannot be ended, and goes on."""
        services = [p for p in self._parts.values() if p.name != "simulator"]
        # Services first, so that none of them sees its model or broker go.
        await self._ended(*(p.process for p in services))
        if simulator := self._parts.get("simulator"):
            await self._ended(simulator.process)
        if self._aggregator:
            server, task = self._aggregator
            server.should_exit = True
            await asyncio.wait([task], timeout=5)
        if self._kafka:
            await self._ended(self._kafka.process)
        if self._guard:
            self._guard.cancel()
            await asyncio.wait([self._guard])
        if self._embedded:
            await asyncio.to_thread(self._embedded.stop)

    async def _ended(self, *processes: OwnedProcess) -> None:
        ends = (asyncio.to_thread(p.end, signal.SIGTERM, _STOP_S) for p in processes)
        for failure in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(failure, BaseException):
                self._say(f"not ended: {failure}")

    async def _start_broker(self) -> None:
        choice = self._plan.broker
        if choice.kind == "embedded":
            topics = [(topic.name, EMBEDDED_PARTITIONS) for topic in catalogue().on_broker()]
            self._embedded = EmbeddedBroker(topics)
            try:
                await asyncio.to_thread(self._embedded.start)
            except EmbeddedBrokerError as error:
                raise ServerError(f"the embedded broker did not start: {error}") from error
            self.bootstrap = self._embedded.bootstrap
            guard = UnreadGuard(self._embedded, readers(SERVICES), EMBEDDED_PARTITIONS, self._say)
            self._guard = asyncio.create_task(guard.run())
            return
        if choice.kind == "kafka":
            await asyncio.to_thread(jars.fetch)
            self._kafka = Broker(self._plan.data / "kafka", dies_with_parent=True)
            self._say("starting Apache Kafka")
            await asyncio.to_thread(self._kafka.start)
            self.bootstrap = self._kafka.bootstrap
        else:
            self.bootstrap = choice.bootstrap
        await self._make_topics()

    async def _make_topics(self) -> None:
        """Create what is missing; a broker that is not there is waited for, and said so."""
        waiting = False
        while True:
            try:
                report = await create_missing(self.bootstrap, EMBEDDED_PARTITIONS)
                break
            except TopicAdminError as error:
                raise ServerError(str(error)) from error
            except (KafkaError, OSError):
                if not waiting:
                    self._say(f"waiting for the broker at {self.bootstrap}, which does not answer")
                waiting = True
                await asyncio.sleep(1)
        if report.created:
            self._say(f"created {len(report.created)} topics on {self.bootstrap}")

    async def _start_aggregator(self) -> None:
        sock = http.bind(HttpSection())
        server = http.server(aggregator.app())
        self._aggregator = (server, asyncio.create_task(server.serve(sockets=[sock])))
        self.aggregator_url = f"http://127.0.0.1:{sock.getsockname()[1]}/wallets/{{address}}"

    async def _start_simulator(self) -> None:
        options = ["--port", "0", "--json", *self._plan.simulator_options]
        part = self._launch("simulator", ["-m", "deploy.dev.simulator", *options], {})
        line = await self._line(part, '{"')
        address = json.loads(line)
        self.model_url = part.address = str(address["url"])

    def _launch(self, name: str, arguments: list[str], environment: dict[str, str]) -> Part:
        folder = self._plan.data / "run"
        folder.mkdir(exist_ok=True)
        part = Part(
            name,
            [sys.executable, *arguments],
            {**os.environ, **environment},
            OwnedProcess(folder / f"{name}.pid", folder / f"{name}.log"),
            PartLog(folder / f"{name}.log"),
        )
        part.process.log.unlink(missing_ok=True)
        self._parts[name] = part
        self._run(part)
        return part

    def _run(self, part: Part) -> None:
        part.process.launch(part.command, env=part.environment, parent_death=signal.SIGTERM)

    async def _ready(self, part: Part) -> None:
        line = await self._line(part, READY_PREFIX)
        part.address = json.loads(line.removeprefix(READY_PREFIX))["http"]
        got, wanted = part.address.rpartition(":")[2], part.environment.get("ASSAY_HTTP__PORT", "0")
        if wanted not in ("0", got):
            self._say(f"port {wanted} is taken; {part.name} uses {got}")
        # Started again, it shall come back where it was.
        part.environment["ASSAY_HTTP__PORT"] = got

    async def _line(self, part: Part, prefix: str) -> str:
        """The first line of the part's log with that prefix."""
        end = asyncio.get_running_loop().time() + _READY_S
        while asyncio.get_running_loop().time() < end:
            if line := part.log.line(prefix):
                return line
            self._check_alive()
            await asyncio.sleep(0.02)
        raise ServerError(f"{part.name} was not ready in {_READY_S:g} s; see {part.process.log}")

    async def _services_ready(self) -> None:
        """Ready is what `/readyz` says: partitions assigned, nothing away."""
        end = asyncio.get_running_loop().time() + _READY_S
        waiting = dict.fromkeys(SERVICES, "")
        while waiting:
            self._check_alive()
            for name in list(waiting):
                waiting[name] = await _problems(self.address(name))
                if not waiting[name]:
                    del waiting[name]
            if waiting and asyncio.get_running_loop().time() > end:
                name, problem = next(iter(waiting.items()))
                raise ServerError(f"{name} is not ready: {problem}")
            await asyncio.sleep(0.05)

    def _check_alive(self) -> None:
        for part in self._parts.values():
            if part.process.pid is None:
                raise ServerError(f"{part.name} ended at its start: {part.log.last_words()}")


async def _problems(address: str) -> str:
    """What `/readyz` names, empty when ready."""
    host, _, port = address.removeprefix("http://").partition(":")
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET /readyz HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            text = (await reader.read()).decode()
            writer.close()
    except OSError as error:  # TimeoutError is one
        return str(error) or "no answer within 5 s"
    status, _, body = text.partition("\r\n\r\n")
    return "" if " 200 " in status[:20] else body or "an empty answer"
