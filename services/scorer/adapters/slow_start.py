"""After an outage calls go one at a time until one is answered: a backend that dies of many at
once, or of a certain one, would otherwise take them all along each time it is back."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable


class SlowStart:
    """Turns of calls. `turn_s` bounds how long one keeps the others waiting: it may hang."""

    def __init__(self, turn_s: float, clock: Callable[[], float]) -> None:
        self._turn_s = turn_s
        self._clock = clock
        self._on = False
        self._running = 0
        self._begun = 0
        self._begun_at = -math.inf
        self._moved = asyncio.Event()

    def begin(self) -> None:
        """The outage is over, as far as a probe can tell."""
        self._on = True

    def end(self) -> None:
        """A call was answered."""
        if self._on:
            self._on = False
            self._wake()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[Callable[[], bool]]:
        """Around a call; says when asked whether no other has been in flight beside it."""
        while self._on and self._running:
            left = self._begun_at + self._turn_s - self._clock()
            if left <= 0:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._moved.wait()
        first = not self._running
        self._running += 1
        self._begun += 1
        self._begun_at = self._clock()
        number = self._begun
        try:
            yield lambda: first and self._begun == number
        finally:
            self._running -= 1
            self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
