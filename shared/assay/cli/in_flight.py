"""How much of `assay publish` may be on its way at once."""

from __future__ import annotations

import asyncio

_RECORDS = 64
_BYTES = 4_000_000


class InFlight:
    """Bounds what is on its way, in records and bytes, so that a broker with little memory is
    not handed more than its consumers have read. One record always fits."""

    def __init__(self) -> None:
        self._records = _RECORDS
        self._size = _BYTES
        self._changed = asyncio.Condition()

    async def take(self, size: int) -> None:
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._records > 0 and (self._size > 0 or self._records == _RECORDS)
            )
            self._records -= 1
            self._size -= size

    async def give(self, size: int) -> None:
        async with self._changed:
            self._records += 1
            self._size += size
            self._changed.notify_all()
