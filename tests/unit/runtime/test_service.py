"""How a service begins and ends: signals, exit codes, what still starts (DESIGN §3)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog

from assay_runtime import service as module
from assay_runtime.failures import Pause, Stop
from assay_runtime.opening import opened
from assay_runtime.service import Service, main, run
from assay_runtime.settings import Settings, SettingsError


class Resource:
    """Opens when `there`; says whether it was closed as often as it was opened."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.failure = failure
        self.asked = asyncio.Event()
        self.open_now = 0

    async def open(self) -> None:
        self.asked.set()
        if self.failure is not None:
            raise self.failure
        self.open_now += 1

    async def close(self) -> None:
        self.open_now -= 1


async def forever() -> None:
    await asyncio.Event().wait()


async def test_sigterm_while_a_resource_is_waited_for() -> None:
    """The end does not wait for what is away; what was opened before is closed."""
    there, away = Resource(), Resource(Pause("store", "away"))
    service = Service("s", [], resources=[opened(there, "a"), opened(away, "b")])
    ending = asyncio.create_task(run(service, Settings()))
    await away.asked.wait()
    signal.raise_signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        await ending
    assert there.open_now == 0


async def test_background_work_that_fails_ends_the_service() -> None:
    """Crash-only: what failed is what is raised, and the rest is closed."""
    there = Resource()

    async def fail() -> None:
        raise Stop("the format is ignored")

    service = Service("s", [], resources=[opened(there, "a")], background=[forever, fail])
    with pytest.raises(Stop, match="the format is ignored"):
        await run(service, Settings())
    assert there.open_now == 0


async def test_background_work_that_ends_is_a_failure() -> None:
    async def done() -> None:
        return None

    with pytest.raises(Stop, match="ended by itself"):
        await run(Service("s", [], background=[done]), Settings())


class FailingRunner:
    """A runner whose stop fails, as with a broker that has gone."""

    stopped: list[str] = []

    def __init__(self, service: str, pipeline: Any, kafka: Any, health: Any) -> None:
        self.name = pipeline

    async def start(self) -> None:
        return None

    async def run(self) -> None:
        if self.name == "bad":
            raise Stop("poisoned producer")
        await forever()

    async def stop(self, drain_s: float) -> None:
        self.stopped.append(self.name)
        if self.name == "bad":
            raise OSError("no broker")


async def test_a_stop_that_fails_hides_neither_the_reason_nor_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "runners", lambda *what: [FailingRunner(*what)])
    FailingRunner.stopped = []
    there = Resource()
    service = Service("s", ["good", "bad"], resources=[opened(there, "a")])  # type: ignore[list-item]
    with pytest.raises(Stop, match="poisoned producer"):
        await run(service, Settings())
    assert sorted(FailingRunner.stopped) == ["bad", "good"]
    assert there.open_now == 0


class FailingAtTheEnd:
    """A runner whose last record fails while it is drained."""

    def __init__(self, service: str, pipeline: Any, kafka: Any, health: Any) -> None:
        self.name = pipeline
        self._drained = asyncio.Event()

    async def start(self) -> None:
        return None

    async def run(self) -> None:
        signal.raise_signal(signal.SIGTERM)
        await self._drained.wait()
        raise Stop("the key is gone")

    async def stop(self, drain_s: float) -> None:
        self._drained.set()
        await asyncio.sleep(0)


async def test_a_failure_on_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record is handled again at the next start, which nobody should have to guess."""
    monkeypatch.setattr(module, "runners", lambda *what: [FailingAtTheEnd(*what)])
    with structlog.testing.capture_logs() as logs:
        await run(Service("s", ["p"]), Settings())  # type: ignore[list-item]
    said = [line["error"] for line in logs if line["event"] == "failed_while_stopping"]
    assert said == ["Stop('the key is gone')"]


class ConnectingRunner:
    """A runner that is connecting when the signal comes."""

    said: list[str] = []

    def __init__(self, service: str, pipeline: Any, kafka: Any, health: Any) -> None:
        self.name = "p"

    async def start(self) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            await forever()
        finally:
            self.said.append("start is over")

    async def stop(self, drain_s: float) -> None:
        self.said.append("stopped")


async def test_what_still_starts_is_over_before_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a consumer would join its group behind the back of its own end."""
    monkeypatch.setattr(module, "runners", lambda *what: [ConnectingRunner(*what)])
    ConnectingRunner.said = []
    await run(Service("s", ["p"]), Settings())  # type: ignore[list-item]
    assert ConnectingRunner.said == ["start is over", "stopped"]


def failing(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SettingsError("ASSAY_X: the file is newer"), 2, "ASSAY_X: the file is newer"),
        (Stop("restart me"), 1, ""),
        (KeyError("a bug"), 1, ""),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, said: str, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """2 asks for other settings, also where a resource finds that out; 1 asks for a restart."""
    monkeypatch.setattr(module.logging, "configure", lambda section, name: None)
    with pytest.raises(SystemExit) as ended:
        main("s", Settings, lambda settings: Service("s", [], background=[failing(error)]))
    assert ended.value.code == code
    assert said in capfd.readouterr().err
