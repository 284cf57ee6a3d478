"""A stack's own Apache Kafka: when it ends, it is started again where it was."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from deploy.dev.data_folder import private_folder
from deploy.kafka import jars
from deploy.kafka.broker import Broker
from deploy.owned_process import ServerError

_STOP_S = 20.0
_AGAIN_S = 2.0


class OwnKafka:
    """One broker with its data in `folder`; `say` is told when it ends and when it is back."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._broker = self._made()
        self._starting: asyncio.Task[None] | None = None

    def _made(self, port: int | None = None) -> Broker:
        return Broker(self._folder, port, dies_with_parent=True)

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    async def start(self) -> None:
        """ServerError where it cannot be started."""
        private_folder(self._folder)
        await asyncio.to_thread(jars.fetch)
        self._say("starting Apache Kafka")
        await asyncio.to_thread(self._broker.start)

    def look(self) -> None:
        """Begin to start it again if it has ended; called again and again."""
        if self._starting is not None and not self._starting.done():
            return
        if not self._broker.running:
            self._say(f"Apache Kafka at {self.bootstrap} ended; starting it again")
            # On its old port or not at all: the services know no other.
            self._broker = self._made(self._broker.port)
            self._starting = asyncio.create_task(self._start_again())

    async def _start_again(self) -> None:
        try:
            await asyncio.to_thread(self._broker.start)
        except ServerError as error:
            self._say(f"Apache Kafka was not started again: {error}")
            await asyncio.sleep(_AGAIN_S)
        else:
            self._say(f"Apache Kafka is back at {self.bootstrap}")

    async def stop(self) -> None:
        """End it; what does not go is killed."""
        try:
            await self._end()
            while self._starting is not None and not self._starting.done():
                # A start under way sees its process go, or has yet to make one.
                await asyncio.wait([self._starting], timeout=0.2)
                await self._end()
        except ServerError as failure:
            self._say(f"not ended: {failure}")

    async def _end(self) -> None:
        await asyncio.to_thread(self._broker.process.end, signal.SIGTERM, _STOP_S)
