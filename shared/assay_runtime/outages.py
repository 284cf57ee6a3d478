"""Waiting in place while something that every record needs is away (DESIGN §3)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from assay_runtime import metrics
from assay_runtime.failures import Pause

log = structlog.get_logger()
T = TypeVar("T")


class Outages:
    """Repeats what says Pause; tells once when an outage begins and once when it is over,
    however many records wait for the same thing."""

    def __init__(
        self, pipeline: str, on_pause: Callable[[str | None], None], pause_s: float
    ) -> None:
        self._pipeline = pipeline
        self._on_pause = on_pause
        self._pause_s = pause_s
        self._waiting: Counter[str] = Counter()

    async def wait_out(self, call: Callable[[], Awaitable[T]]) -> T:
        """The call's result, however long it says Pause: wait in place, lose nothing."""
        missing: str | None = None
        try:
            while True:
                try:
                    return await call()
                except Pause as outage:
                    if outage.what != missing:
                        self._no_longer(missing)
                        missing = outage.what
                        self._begins(outage)
                    self._on_pause(str(outage))
                await asyncio.sleep(self._pause_s)
        finally:
            self._no_longer(missing)

    def _begins(self, outage: Pause) -> None:
        self._waiting[outage.what] += 1
        if self._waiting[outage.what] == 1:
            log.warning("paused", pipeline=self._pipeline, reason=str(outage))
            metrics.PAUSED.labels(self._pipeline, outage.what).set(1)

    def _no_longer(self, missing: str | None) -> None:
        if missing is None:
            return
        self._waiting[missing] -= 1
        if self._waiting[missing] == 0:
            del self._waiting[missing]
            metrics.PAUSED.labels(self._pipeline, missing).set(0)
            log.info("resumed", pipeline=self._pipeline, what=missing)
        if not self._waiting:
            self._on_pause(None)
