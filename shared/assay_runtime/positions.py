"""Keeps the consumer's positions and the window's in step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from assay_runtime.failures import Pause
from assay_runtime.leaders import leaderless, shown
from assay_runtime.records import Position
from assay_runtime.starting import StartingPositions
from assay_runtime.window import Window

log = structlog.get_logger()

OnPause = Callable[[str | None], None]

_RETRY_S = 0.5


class Positions:
    """Which partitions still have to be positioned, and positioning them.

    Whatever is asked of the broker may be overtaken by a rebalance; what was wanted is compared
    again before anything is done with the answer, with no await between. Partitions that cannot be
    asked about hold up no others; `on_pause` is told of them.
    """

    def __init__(
        self, pipeline: str, window: Window, starting: StartingPositions, on_pause: OnPause
    ) -> None:
        self._pipeline = pipeline
        self._window = window
        self._starting = starting
        self._on_pause = on_pause
        self._new: set[Position] = set()
        self._overtaken: set[Position] = set()
        self._generation = 0
        self._unknown: str | None = None
        self._next_try = 0.0

    @property
    def settled(self) -> bool:
        """Whether every assigned partition reads from where it should."""
        return not self._new and not self._overtaken

    def assigned(self, positions: Iterable[Position]) -> None:
        self._generation += 1
        self._new = set(positions)
        self._overtaken.clear()
        self._next_try = 0.0
        self._tell(None)

    def revoked(self) -> None:
        """All of them: aiokafka's rebalances are eager (point 11)."""
        self.assigned(())
        self._window.revoke(self._window.positions())

    def overtaken(self, positions: Iterable[Position]) -> None:
        """The broker no longer has what would be read next."""
        self._overtaken.update(p for p in positions if self._window.next_offset(p) is not None)

    async def settle(self, consumer: Any) -> None:
        """Position what is new or overtaken; what cannot be known yet is left for a later call.

        Raises Stop when records were lost and that is to end the process.
        """
        if time.monotonic() < self._next_try:
            return
        try:
            if self._overtaken:
                await self._pass_gaps(consumer)
            if self._new:
                await self._start(consumer)
        except Pause as outage:
            self._tell(str(outage))
        except IllegalStateError:
            return  # revoked while we asked
        except KafkaError as error:
            self._tell(repr(error))
        else:
            away = leaderless(consumer, self._new | self._overtaken)
            self._tell(shown(away) if away else None)
        if self.settled:
            return
        # A poll would only meet again what is overtaken, if it is led.
        if self._overtaken.difference(leaderless(consumer, self._overtaken)) or (
            not self._window.positions()
        ):
            await asyncio.sleep(_RETRY_S)
        else:
            self._next_try = time.monotonic() + _RETRY_S  # the others are read meanwhile

    def _tell(self, reason: str | None) -> None:
        if reason == self._unknown:
            return
        self._unknown = reason
        if reason is not None:
            log.warning("positions_unknown", pipeline=self._pipeline, error=reason)
        self._on_pause(reason)

    async def _start(self, consumer: Any) -> None:
        generation = self._generation
        wanted = self._new.difference(leaderless(consumer, self._new))
        if not wanted:
            return
        found = await self._starting.find(consumer, tuple(wanted))
        if generation != self._generation:
            return
        self._starting.tell(found)
        for position, offset in found.start.items():
            consumer.seek(TopicPartition(*position), offset)
        self._window.assign(found.start, found.committed, found.finished)
        self._new.difference_update(found.start)
        await self._starting.told(found)

    async def _pass_gaps(self, consumer: Any) -> None:
        """Go on behind what retention removed; what is in flight stays in flight."""
        generation = self._generation
        led = self._overtaken.difference(leaderless(consumer, self._overtaken))
        at = {position: self._window.next_offset(position) for position in led}
        known = {position: offset for position, offset in at.items() if offset is not None}
        if not known:
            return
        found = await self._starting.after_gaps(consumer, known)
        if generation != self._generation:
            return
        self._starting.tell(found)
        for position, onward in found.start.items():
            consumer.seek(TopicPartition(*position), onward)
            if onward < known[position]:
                self._window.assign({position: onward})
            else:
                self._window.skip(position, onward)
            self._overtaken.discard(position)
        await self._starting.told(found)

    async def recordless(self, consumer: Any, among: Iterable[Position]) -> dict[Position, int]:
        """How far reading got beyond the last record, where nothing is in flight: such offsets
        hold none, as the end of a publisher's transaction."""
        generation, found = self._generation, dict[Position, int]()
        for position in among:
            before = self._window.next_offset(position)
            if before is None or self._window.held(position):
                continue
            at: int = await consumer.position(TopicPartition(*position))
            if at > before:
                found[position] = at
        return found if generation == self._generation else {}

    async def pass_recordless(self, at: Mapping[Position, int]) -> None:
        """They are not unread, nor lost where retention removes them: stored and committed like
        others."""
        generation = self._generation
        if await self._starting.pass_over(at) and generation == self._generation:
            for position, onward in at.items():
                self._window.skip(position, onward)

    def rewind(self, consumer: Any) -> None:
        """Go back to what was admitted last, everywhere."""
        for position in self._window.positions():
            try:
                consumer.seek(TopicPartition(*position), self._window.next_offset(position))
            except IllegalStateError:
                return  # a rebalance has begun, which positions everything anew
