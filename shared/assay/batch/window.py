"""How much of a batch may be on its way at once."""

from __future__ import annotations

import asyncio

# A broker that keeps 5 MB a partition must not be handed more than its readers have taken.
RECORDS = 256
BYTES = 1_000_000
FIRST = 8


class Window:
    """Bounds open requests in records and bytes. Few until `widen`: the first outcome shows that
    the process exists. One request always fits."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._records = FIRST
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._sizes)

    async def take(self, request: str, size: int) -> None:
        while self._sizes and (len(self._sizes) >= self._records or self._bytes + size > BYTES):
            self._changed.clear()
            await self._changed.wait()
        self.hold(request, size)

    def hold(self, request: str, size: int = 0) -> None:
        """Count what is on its way already."""
        self._sizes[request] = size
        self._bytes += size

    def give(self, request: str) -> None:
        self._bytes -= self._sizes.pop(request, 0)
        self._changed.set()

    def widen(self) -> None:
        self._records = RECORDS
        self._changed.set()
