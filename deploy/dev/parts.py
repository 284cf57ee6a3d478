"""The child processes of a stack: started, watched, started again where they were, ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_runtime import http
from assay_runtime.service import READY_PREFIX
from assay_runtime.settings import Settings, SettingsError, load
from deploy.dev.data_folder import private_folder, write_private
from deploy.dev.part_log import PartLog
from deploy.owned_process import OwnedProcess, ServerError

_READY_S = 60.0
_STOP_S = 20.0
_HTTP = "ASSAY_HTTP__"
_PORT, _FD = f"{_HTTP}PORT", f"{_HTTP}FD"
Say = Callable[[str], None]


@dataclass(slots=True)
class Part:
    """One child process and where it listens. `listener` is held here, so that nobody else gets
    its port, and who connects waits, while it is started again."""

    name: str
    command: list[str]
    environment: dict[str, str]
    process: OwnedProcess
    log: PartLog
    address: str = ""
    restarts: int = 0
    listener: socket.socket | None = None


class Parts:
    """All of a stack's, by name; their records and logs lie in `folder`. `say` is told what a
    person at the terminal has to know."""

    def __init__(self, folder: Path, say: Say) -> None:
        self._folder = folder
        self._say = say
        self._parts: dict[str, Part] = {}

    def __getitem__(self, name: str) -> Part:
        return self._parts[name]

    def alive(self, name: str) -> bool:
        part = self._parts.get(name)
        return part is not None and part.process.pid is not None

    def launch(self, name: str, arguments: Sequence[str], environment: dict[str, str]) -> Part:
        """Start Python with `arguments` and these settings on top of our own environment."""
        folder = private_folder(self._folder)
        log = folder / f"{name}.log"
        write_private(log, "")
        files = {f"{setting}_FILE" for setting in environment}  # would be the same setting twice
        own = {variable: text for variable, text in os.environ.items() if variable not in files}
        part = Part(
            name,
            [sys.executable, *arguments],
            own | environment,
            OwnedProcess(folder / f"{name}.pid", log),
            PartLog(log),
        )
        self._parts[name] = part
        if _PORT in environment:
            self._listen(part)
        self._run(part)
        return part

    def _listen(self, part: Part) -> None:
        ours = {n: text for n, text in part.environment.items() if n.startswith(_HTTP)}
        wanted = part.environment[_PORT]
        try:
            part.listener = http.listen(load(Settings, ours).http)
        except SettingsError as error:
            raise ServerError(f"{part.name}: {error}") from error
        got = str(part.listener.getsockname()[1])
        if wanted not in ("0", got):
            self._say(f"port {wanted} is taken; {part.name} uses {got}")
        part.environment |= {_PORT: got, _FD: str(part.listener.fileno())}

    def _run(self, part: Part) -> None:
        part.process.launch(
            part.command,
            env=part.environment,
            parent_death=signal.SIGTERM,
            pass_fds=(part.listener.fileno(),) if part.listener else (),
        )

    async def line(self, part: Part, prefix: str) -> str:
        """The first line of the part's log with that prefix."""
        end = asyncio.get_running_loop().time() + _READY_S
        while asyncio.get_running_loop().time() < end:
            if line := part.log.line(prefix):
                return line
            self._check_alive()
            await asyncio.sleep(0.02)
        raise ServerError(f"{part.name} was not ready in {_READY_S:g} s; see {part.process.log}")

    async def listening(self, part: Part) -> None:
        """Wait until a service says where it listens."""
        line = await self.line(part, READY_PREFIX)
        part.address = json.loads(line.removeprefix(READY_PREFIX))["http"]

    async def ready(self, names: Sequence[str]) -> None:
        """Ready is what `/readyz` says: partitions assigned, nothing away."""
        end = asyncio.get_running_loop().time() + _READY_S
        waiting = dict.fromkeys(names, "")
        while waiting:
            self._check_alive()
            for name in list(waiting):
                waiting[name] = await _problems(self._parts[name].address)
                if not waiting[name]:
                    del waiting[name]
            if waiting and asyncio.get_running_loop().time() > end:
                name, problem = next(iter(waiting.items()))
                raise ServerError(f"{name} is not ready: {problem}")
            await asyncio.sleep(0.05)

    async def look(self) -> None:
        """Start again what has ended (services are crash-only), and say what logs have news of."""
        for part in self._parts.values():
            if part.process.pid is None:
                part.restarts += 1
                self._say(f"{part.name} ended ({part.log.last_words()}); starting it again")
                await asyncio.sleep(min(0.2 * part.restarts, 5))
                self._run(part)
            for news in part.log.news():
                self._say(f"{part.name}: {news}")

    async def end(self, *names: str) -> None:
        """End those that were started; what does not go is killed. Says what cannot be ended."""
        ending = [self._parts[name] for name in names if name in self._parts]
        for part in ending:
            if part.listener:
                part.listener.close()  # or who connects from now on would wait for nobody
        going = [part.process for part in ending]
        ends = (asyncio.to_thread(p.end, signal.SIGTERM, _STOP_S) for p in going)
        for failure in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(failure, BaseException):
                self._say(f"not ended: {failure}")

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
