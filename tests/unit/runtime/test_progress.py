"""The watchdog fires on a stuck consumer and never on one that waits for good reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from aiokafka.errors import KafkaConnectionError

from assay_runtime.failures import Stop
from assay_runtime.progress import Progress
from assay_runtime.settings import KafkaSection


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def says(work: str | None) -> Callable[[], Awaitable[str | None]]:
    async def waiting() -> str | None:
        return work

    return waiting


async def away() -> str | None:
    raise KafkaConnectionError("refused")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[str | None]:
    return []


@pytest.fixture
def progress(clock: Clock, told: list[str | None]) -> Progress:
    return Progress(KafkaSection(stall_s=60, busy_stall_s=600), "p", told.append, clock)


async def watch(
    progress: Progress, clock: Clock, seconds: int, in_flight: int, work: object
) -> None:
    for _ in range(seconds // 2):
        clock.now += 2
        await progress.check(in_flight, work)  # type: ignore[arg-type]


async def test_lag_and_nothing_read_ends_it(progress: Progress, clock: Clock) -> None:
    """Research point 17: the only sign of a consumer that is stuck."""
    await watch(progress, clock, 60, 0, says("lag 7"))
    with pytest.raises(Stop, match="lag 7 and no progress"):
        await watch(progress, clock, 4, 0, says("lag 7"))


async def test_nothing_to_do_is_no_stall(progress: Progress, clock: Clock) -> None:
    await watch(progress, clock, 10_000, 0, says(None))


async def test_a_long_model_call_is_no_stall(progress: Progress, clock: Clock) -> None:
    """In flight has its own, longer limit; that there is one catches a handler that hangs."""
    await watch(progress, clock, 600, 16, says("lag 7"))
    with pytest.raises(Stop, match="16 records in flight"):
        await watch(progress, clock, 4, 16, says("lag 7"))


async def test_a_pause_is_no_stall(progress: Progress, clock: Clock) -> None:
    for _ in range(1_000):
        progress.note()
        await watch(progress, clock, 4, 16, says("lag 7"))


async def test_a_broker_that_is_away_is_no_stall(
    progress: Progress, clock: Clock, told: list[str | None]
) -> None:
    """Readiness says so; afterwards the clock starts anew."""
    await watch(progress, clock, 10_000, 0, away)
    assert told[-1] is not None
    assert "does not answer" in told[-1]
    await watch(progress, clock, 30, 0, says("lag 7"))
    assert told[-1] is None


async def test_a_busy_service_is_ready_again_after_an_outage(
    progress: Progress, clock: Clock, told: list[str | None]
) -> None:
    """The broker is back and there is no quiet moment any more."""
    await watch(progress, clock, 10, 0, away)
    for _ in range(3):
        progress.note()
        await watch(progress, clock, 2, 5, says("lag 7"))
    assert told[-1] is None
    asked = len(told)
    progress.note()
    await watch(progress, clock, 2, 5, says("lag 7"))
    assert len(told) == asked, "a broker that answers is asked in quiet moments alone"
