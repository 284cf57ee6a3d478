"""Runs a service: its pipelines, its pages, its readiness, its graceful end (DESIGN §3)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
from starlette.applications import Starlette
from starlette.types import ASGIApp

from assay_runtime import garbage, http, logging
from assay_runtime.failures import Stop
from assay_runtime.health import Check, Health
from assay_runtime.pipeline import Pipeline, Runner, runners
from assay_runtime.settings import Settings, SettingsError, load

log = structlog.get_logger()

# A supervisor reads this line to learn where the service listens.
READY_PREFIX = "assay-ready "

_HTTP_END_S = 6.0
_LAST_S = 0.5


@dataclass(slots=True)
class Service:
    """A service put together: what `app.build` returns.

    `resources` are entered before the pipelines start and left after they have stopped, in
    reverse order; `app` is the service's own ASGI application, mounted beside health and metrics.
    `drain_s` is how long running records may take to finish on SIGTERM.
    """

    name: str
    pipelines: Sequence[Pipeline]
    app: ASGIApp | None = None
    resources: Sequence[contextlib.AbstractAsyncContextManager[object]] = ()
    checks: Mapping[str, Check] = field(default_factory=dict)
    background: Sequence[Callable[[], Awaitable[None]]] = ()
    drain_s: float = 10.0


async def run(service: Service, settings: Settings) -> None:
    """Until SIGTERM or SIGINT; raises what ended it otherwise."""
    health = Health()
    health.add_checks(service.checks)
    app = Starlette(routes=health.routes())
    if service.app is not None:
        app.mount("/", service.app)
    sock = http.bind(settings.http)
    server = http.server(app)
    serving = asyncio.create_task(server.serve(sockets=[sock]), name="http")
    running = [
        runner
        for pipeline in service.pipelines
        for runner in runners(service.name, pipeline, settings.kafka, health)
    ]
    async with contextlib.AsyncExitStack() as stack:
        starting = asyncio.create_task(_start(service, running, stack), name="start")
        tasks = {serving, starting, asyncio.create_task(_signal().wait(), name="signal")}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                tasks.discard(starting)
                tasks |= {asyncio.create_task(r.run(), name=r.name) for r in running}
                tasks |= {asyncio.create_task(_background(b)) for b in service.background}
                health.note("service", None)
                garbage.settle()
                _announce(service, sock)
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done() and task.get_name() != "signal":
                    task.result()
                    raise Stop(f"{task.get_name()} ended by itself")
            log.info("stopping")
        finally:
            health.note("service", "stopping")
            # What still starts must not go on behind the back of what is stopped.
            await _end([starting], sys.exception())
            tasks.discard(starting)
            await _stop(running, service.drain_s)
            server.should_exit = True
            await asyncio.wait([serving], timeout=_HTTP_END_S)
            await _end(tasks, sys.exception())
    log.info("stopped")


def _signal() -> asyncio.Event:
    """Set by SIGTERM or SIGINT. A second one changes nothing: the end is bounded in time, and a
    terminal sends its own beside the supervisor's."""
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled.set)
    return signalled


async def _start(
    service: Service, runners: Sequence[Runner], stack: contextlib.AsyncExitStack
) -> None:
    for resource in service.resources:
        await stack.enter_async_context(resource)
    await asyncio.gather(*(runner.start() for runner in runners))


async def _background(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def _stop(runners: Sequence[Runner], drain_s: float) -> None:
    """All of them, whatever one of them says; what ended the service is what is reported."""
    ended = await asyncio.gather(*(r.stop(drain_s) for r in runners), return_exceptions=True)
    for runner, error in zip(runners, ended, strict=True):
        if error is not None:
            log.error("pipeline_not_stopped", pipeline=runner.name, error=repr(error))


async def _end(tasks: Collection[asyncio.Task[Any]], reported: BaseException | None = None) -> None:
    """Cancel what still runs; what failed on the way out is said, once."""
    for task in tasks:
        task.cancel()
    for task, error in zip(
        tasks, await asyncio.gather(*tasks, return_exceptions=True), strict=True
    ):
        if isinstance(error, Exception) and error is not reported:
            log.error("failed_while_stopping", task=task.get_name(), error=repr(error))


def _announce(service: Service, sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    line = {"service": service.name, "http": f"http://{host}:{port}", "pid": os.getpid()}
    print(READY_PREFIX + json.dumps(line), flush=True)
    log.info("ready", **line)


S = TypeVar("S", bound=Settings)


def main(name: str, model: type[S], build: Callable[[S], Service]) -> None:
    """Entry point of `python -m services.<name>`.

    Exit codes: 0 after SIGTERM, 1 when only a restart helps (Stop or a bug), 2 for settings.
    """
    try:
        settings = load(model)
        logging.configure(settings.log, name)
        with _Ending() as ending:
            code = asyncio.run(_to_the_end(build(settings), settings, ending))
        sys.exit(code)
    except SettingsError as error:
        print(f"{name}: settings are not usable\n{error}", file=sys.stderr)
        sys.exit(2)
    except Exception:
        log.exception("crashed")
        sys.exit(1)


async def _to_the_end(service: Service, settings: Settings, ending: _Ending) -> int:
    """Exit code of `run`, after which the loop is expected to end."""
    code = 1
    try:
        await run(service, settings)
        code = 0
    except Stop as reason:
        log.error("stopped_by_failure", reason=str(reason))
    except SettingsError:
        raise
    except Exception:
        log.exception("crashed")
    ending.begin(code)
    return code


class _Ending:
    """Ends the process where the loop does not: everything is committed and closed by then, so
    no handler that ignores its cancellation and no thread may keep it any longer."""

    _timer: threading.Timer | None = None

    def begin(self, code: int) -> None:
        self._timer = threading.Timer(_LAST_S, _leave, [code])
        self._timer.daemon = True
        self._timer.start()

    def __enter__(self) -> _Ending:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _leave(code: int) -> None:
    log.warning("left_with_work_that_does_not_end")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
