"""How much of a bounded window each partition may hold, and which are worth reading now."""

from __future__ import annotations

from assay_runtime.records import Position
from assay_runtime.window import Window

# One record that does not end must not let the rest run ahead without bound.
_SPAN = 10_000
# Of values that are admitted and not done. Reading stops there; the poll under way may pass it.
_BYTES = 33_554_432


class Shares:
    """`cap` records in all, shared evenly over the assigned partitions, and 32 MB of them.

    Reading pays only where a quarter of a share, and of the cap, is free: the lanes hold a
    reserve of three times the slots, so no slot stands empty meanwhile.
    """

    def __init__(self, window: Window, cap: int, first: frozenset[str]) -> None:
        self._window = window
        self._cap = cap
        self._first = first
        self._rotation = 0
        self.bytes_held = 0

    @property
    def quota(self) -> int:
        """Records that one partition may hold."""
        return max(2, -(-self._cap // max(1, len(self._window.positions()))))

    @property
    def full(self) -> bool:
        return (
            self._window.in_flight > self._cap - max(1, self._cap // 4) or self.bytes_held >= _BYTES
        )

    @property
    def few(self) -> int:
        """Records that may be read from any of the eligible without exceeding its share."""
        return max(1, self.quota // 4)

    def room(self, position: Position) -> int:
        """Records that may be read from this partition now."""
        if self.bytes_held >= _BYTES:
            return 0
        free = min(self.quota - self._window.held(position), self._cap - self._window.in_flight)
        return max(0, free)

    def has_room(self, position: Position) -> bool:
        return (
            self._window.held(position) <= self.quota - max(1, self.quota // 4)
            and self._window.span(position) < _SPAN
        )

    def eligible(self) -> list[Position]:
        """Partitions with room, rotated so that each is first in turn; `first` topics lead."""
        positions = self._window.positions()
        if not positions or self.full:
            return []
        self._rotation = (self._rotation + 1) % len(positions)
        turned = positions[self._rotation :] + positions[: self._rotation]
        room = [position for position in turned if self.has_room(position)]
        return sorted(room, key=lambda position: position.topic not in self._first)
