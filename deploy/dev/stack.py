"""Starts every part of a stack, watches over it, and ends all of it."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from aiokafka.errors import KafkaError

from assay.topics import catalogue
from assay_runtime import http
from assay_runtime.settings import HttpSection
from assay_runtime.topic_admin import TopicAdminError
from deploy.dev import aggregator
from deploy.dev.broker import EmbeddedBroker, EmbeddedBrokerError
from deploy.dev.data_folder import private_folder
from deploy.dev.own_kafka import OwnKafka
from deploy.dev.parts import Parts, Say
from deploy.dev.plan import EMBEDDED_PARTITIONS, SERVICES, StackPlan, without_effect
from deploy.dev.seal_key import SEALING, ensure_seal_key
from deploy.dev.unfinished import Unfinished
from deploy.dev.unread_guard import UnreadGuard, readers
from deploy.kafka.catalogue_topics import create_missing
from deploy.owned_process import ServerError


class Stack:
    """A running stack. `addresses` is what `assay up --json` prints."""

    def __init__(self, plan: StackPlan, say: Say) -> None:
        self._plan = plan
        self._say = say
        self._embedded: EmbeddedBroker | None = None
        self._guard: asyncio.Task[None] | None = None
        self._kafka: OwnKafka | None = None
        self._parts = Parts(plan.data / "run", say)
        self._kept = Unfinished(plan, os.environ, say)
        self._aggregator: tuple[http.Server, asyncio.Task[None]] | None = None
        self.bootstrap = ""
        self.aggregator_url = plan.aggregator_url or ""
        self.model_url = plan.model.url

    async def start(self) -> None:
        """Start everything and return when all of it is ready; ServerError says what is not."""
        # Full prompts and answers lie in it: for its owner only.
        if not self._plan.data.is_dir():
            private_folder(self._plan.data)
        await self._start_broker()
        if not self.aggregator_url:
            await self._start_aggregator()
        if self._plan.model.kind == "simulator":
            await self._start_simulator()
        await self._kept.before_services(self.bootstrap)
        self._launch_services()
        for service in SERVICES:
            await self._parts.listening(self._parts[service])
        await self._parts.ready(SERVICES)
        self._kept.take_up()

    def addresses(self, public_key: str) -> dict[str, Any]:
        return {
            "bootstrap": self.bootstrap,
            "api": self.address("ingest"),
            "evidence": self.address("evidence"),
            "public_key": public_key,
            "public_key_url": f"{self.address('signer')}/public-key",
            "topics": {topic.name: topic.name for topic in catalogue()},
            "services": {name: self.address(name) for name in SERVICES},
            "data": str(self._plan.data.resolve()),
            "pid": os.getpid(),
        }

    def address(self, part: str) -> str:
        return self._parts[part].address

    async def watch(self, stop: asyncio.Event) -> None:
        """Until `stop`: start again what ends."""
        while not stop.is_set():
            await self._parts.look()
            if self._kafka:
                self._kafka.look()
            try:
                async with asyncio.timeout(0.5):
                    await stop.wait()
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """End every part; what does not go is killed. Says what cannot be ended, and what is lost
        by it, and goes on."""
        await self._kept.leave_off()
        # Services first, so that none of them sees its model or broker go.
        last = ("evidence",) if self._kept.by_evidence and self._parts.alive("evidence") else ()
        await self._parts.end(*(name for name in SERVICES if name not in last))
        if last:
            await self._kept.wait_for_evidence()
            await self._parts.end(*last)
        await self._parts.end("simulator")
        if self._aggregator:
            server, task = self._aggregator
            server.should_exit = True
            await asyncio.wait([task], timeout=5)
        if self._kafka:
            await self._kafka.stop()
        if self._guard:
            self._guard.cancel()
            await asyncio.wait([self._guard])
        if self._embedded:
            await asyncio.to_thread(self._embedded.stop)
        self._kept.say_what_is_open()

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
            self._kafka = OwnKafka(self._plan.data / "kafka", self._say)
            await self._kafka.start()
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
        part = self._parts.launch("simulator", ["-m", "deploy.dev.simulator", *options], {})
        listening = json.loads(await self._parts.line(part, '{"'))
        self.model_url = part.address = str(listening["url"])
        # Started again, it must come back where the scorer looks for it; the last of two counts.
        part.command += ["--port", str(listening["port"])]

    def _launch_services(self) -> None:
        log = self._plan.log_name()
        seals = ensure_seal_key(self._plan.data, os.environ)
        settings = {
            service: self._plan.environment(
                service,
                bootstrap=self.bootstrap,
                model_url=self.model_url,
                aggregator_url=self.aggregator_url,
                log=log,
                environ=os.environ,
            )
            for service in SERVICES
        }
        for name in without_effect(settings.values(), os.environ):
            self._say(f"{name} of the environment has no effect: `assay up` sets it itself")
        for service, made in settings.items():
            sealed = made | seals if service in SEALING else made
            self._parts.launch(service, ["-m", f"services.{service}"], sealed)
