"""The window: which offsets are in flight, and up to where each partition may be committed.

Pure and synchronous; both engines stand on it (DESIGN §3). Invariants, property-tested in
tests/property/test_window.py: a commit never passes the lowest unfinished offset; a completion
of an old assignment changes nothing; the window never forgets an unfinished offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from assay_runtime.records import Position


@dataclass(frozen=True, slots=True)
class Ticket:
    """Admission of one record; handed back on completion."""

    position: Position
    offset: int
    epoch: int


@dataclass(slots=True)
class _Partition:
    epoch: int
    next_offset: int
    committed: int | None
    open: deque[int] = field(default_factory=deque)
    done: set[int] = field(default_factory=set)


class Window:
    """Offsets in flight of the current assignment.

    Only offsets that were received are tracked, so gaps in a log (compaction, transaction
    markers) need no special case.
    """

    def __init__(self) -> None:
        self._partitions: dict[Position, _Partition] = {}
        self._epoch = 0
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        """Records admitted and not completed, over all partitions."""
        return self._in_flight

    def positions(self) -> tuple[Position, ...]:
        return tuple(self._partitions)

    def held(self, position: Position) -> int:
        """Records of one partition admitted and not completed."""
        partition = self._partitions.get(position)
        return len(partition.open) - len(partition.done) if partition else 0

    def backlog(self, position: Position) -> int:
        """Records of one partition above its watermark, done or not: what a crash would repeat."""
        partition = self._partitions.get(position)
        return len(partition.open) if partition else 0

    def highest_done(self, position: Position) -> int:
        """The highest offset that is done but cannot be committed yet, -1 where there is none."""
        partition = self._partitions.get(position)
        return max(partition.done, default=-1) if partition else -1

    def next_offset(self, position: Position) -> int | None:
        """The lowest offset that would be admitted; None where the partition is not assigned."""
        partition = self._partitions.get(position)
        return partition.next_offset if partition else None

    def assign(
        self, start: Mapping[Position, int], committed: Mapping[Position, int | None] | None = None
    ) -> None:
        """Take partitions over, each from the given offset; `committed` is what the group has
        where that differs, so that the start itself is committed."""
        self._epoch += 1
        for position, offset in start.items():
            self._forget(position)
            known = committed.get(position, offset) if committed is not None else offset
            self._partitions[position] = _Partition(self._epoch, offset, known)

    def skip(self, position: Position, offset: int) -> None:
        """Go on at a higher offset: what lies between is gone from the log. What was admitted
        before stays in flight."""
        partition = self._partitions.get(position)
        if partition is not None and offset > partition.next_offset:
            partition.next_offset = offset

    def revoke(self, positions: Iterable[Position]) -> None:
        """Let partitions go; completions still to come for them are ignored."""
        for position in positions:
            self._forget(position)

    def _forget(self, position: Position) -> None:
        partition = self._partitions.pop(position, None)
        if partition:
            self._in_flight -= len(partition.open) - len(partition.done)

    def admit(self, position: Position, offset: int) -> Ticket | None:
        """Ticket for a received record, or None where it must not be handled: its partition is
        not assigned, or the offset lies below what was received already."""
        partition = self._partitions.get(position)
        if partition is None or offset < partition.next_offset:
            return None
        partition.next_offset = offset + 1
        partition.open.append(offset)
        self._in_flight += 1
        return Ticket(position, offset, partition.epoch)

    def complete(self, ticket: Ticket) -> None:
        """Mark a record as done: all its outputs are confirmed."""
        partition = self._partitions.get(ticket.position)
        if partition is None or partition.epoch != ticket.epoch:
            return
        if ticket.offset in partition.done or (
            not partition.open or ticket.offset < partition.open[0]
        ):
            return
        partition.done.add(ticket.offset)
        self._in_flight -= 1
        while partition.open and partition.open[0] in partition.done:
            partition.done.discard(partition.open.popleft())

    def watermark(self, position: Position) -> int | None:
        """The offset to commit: the lowest that is not done."""
        partition = self._partitions.get(position)
        if partition is None:
            return None
        return partition.open[0] if partition.open else partition.next_offset

    def committable(self) -> dict[Position, int]:
        """Watermarks that moved since the last commit."""
        moved = {}
        for position, partition in self._partitions.items():
            mark = partition.open[0] if partition.open else partition.next_offset
            if mark != partition.committed:
                moved[position] = mark
        return moved

    def committed(self, offsets: Mapping[Position, int]) -> None:
        """Note a successful commit."""
        for position, offset in offsets.items():
            if partition := self._partitions.get(position):
                partition.committed = offset
