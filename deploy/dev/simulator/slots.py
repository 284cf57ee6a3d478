"""How many answers are written at once, and how many wait for it, as in Ollama."""

from __future__ import annotations

import asyncio
from collections import deque


class Busy(Exception):
    """The queue is full."""


class Slots:
    """First come, first served. `limit` 0: no limit. Both may change while calls wait."""

    def __init__(self, limit: int, queue: int) -> None:
        self.limit = limit
        self.queue = queue
        self.taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def resize(self, limit: int, queue: int) -> None:
        """New bounds; calls that now have room go on, and those under way are not disturbed."""
        self.limit = limit
        self.queue = queue
        self._admit()

    async def __aenter__(self) -> None:
        if not self._waiting and self._room():
            self.taken += 1
            return
        if len(self._waiting) >= self.queue:
            raise Busy
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _room(self) -> bool:
        return self.limit == 0 or self.taken < self.limit

    def _release(self) -> None:
        self.taken -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._room():
            turn = self._waiting.popleft()
            if not turn.cancelled():
                self.taken += 1
                turn.set_result(None)
