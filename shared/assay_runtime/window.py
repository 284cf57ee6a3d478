"""The window: which offsets are in flight, and up to where each partition may be committed.

Pure and synchronous; both engines stand on it (DESIGN §3). What becomes of an offset:

    received ─admit─► OPEN ─complete─► FINISHED ─► below the watermark ─commit─► COMMITTED
        │                │                 └─ above it: named in the commit's metadata
        │                └─revoke─► forgotten; whoever has the partition next reads it again
        └─ finished in an earlier assignment, says the metadata ─► FINISHED without running

The watermark is the lowest offset that is not finished. Invariants, property-tested against a
model in tests/property/test_window.py: a commit never passes the lowest unfinished offset, nor
names one as finished; a completion of an old assignment changes nothing; what metadata names as
finished is never handed out again, everything else is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from assay_runtime.finished import Finished
from assay_runtime.records import Position


class Ticket(NamedTuple):
    """Admission of one record; handed back on completion."""

    position: Position
    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Mark:
    """What may be committed of one partition: everything below `offset`, and in the metadata
    everything from there up to `end` except `unfinished`, which ascends. `completions` is how
    many of the assignment this covers."""

    offset: int
    end: int
    unfinished: tuple[int, ...]
    epoch: int
    completions: int


@dataclass(slots=True)
class _Partition:
    epoch: int
    next_offset: int
    committed: int | None
    earlier: Finished | None
    # Ordered by offset, since records are received so.
    open: OrderedDict[int, None] = field(default_factory=OrderedDict)
    highest_done: int = -1
    completions: int = 0
    covered: int = 0

    @property
    def watermark(self) -> int:
        return next(iter(self.open)) if self.open else self.next_offset

    def mark(self) -> Mark:
        offset, end = self.watermark, self.highest_done + 1
        unfinished = [o for o in self.open if o < end]
        if self.earlier is not None and self.earlier.end > self.next_offset:
            # Not all of what an earlier assignment finished has been received again.
            unfinished = list(self.open)
            unfinished += sorted(o for o in self.earlier.unfinished if o >= self.next_offset)
            end = self.earlier.end
        return Mark(offset, max(offset, end), tuple(unfinished), self.epoch, self.completions)


class Window:
    """Offsets in flight of the current assignment.

    Only offsets that were received are tracked, so gaps in a log (compaction, transaction
    markers) need no special case.
    """

    def __init__(self) -> None:
        self._partitions: dict[Position, _Partition] = {}
        self._epoch = 0
        self._in_flight = 0
        self._uncommitted = 0

    @property
    def in_flight(self) -> int:
        """Records admitted and not completed, over all partitions."""
        return self._in_flight

    @property
    def uncommitted(self) -> int:
        """Records completed that no commit covers yet: a crash now would repeat them."""
        return self._uncommitted

    def positions(self) -> tuple[Position, ...]:
        return tuple(self._partitions)

    def held(self, position: Position) -> int:
        """Records of one partition admitted and not completed."""
        partition = self._partitions.get(position)
        return len(partition.open) if partition else 0

    def span(self, position: Position) -> int:
        """Offsets of one partition from the watermark to the end of what was received."""
        partition = self._partitions.get(position)
        return partition.next_offset - partition.watermark if partition else 0

    def next_offset(self, position: Position) -> int | None:
        """The lowest offset that would be admitted; None where the partition is not assigned."""
        partition = self._partitions.get(position)
        return partition.next_offset if partition else None

    def assign(
        self,
        start: Mapping[Position, int],
        committed: Mapping[Position, int | None] | None = None,
        finished: Mapping[Position, Finished] | None = None,
    ) -> None:
        """Take partitions over, each from the given offset; `committed` is what the group has
        where that differs, so that the start itself is committed. What is `finished` already
        passes without being admitted."""
        self._epoch += 1
        for position, offset in start.items():
            self._forget(position)
            known = committed.get(position, offset) if committed is not None else offset
            earlier = finished.get(position) if finished is not None else None
            self._partitions[position] = _Partition(self._epoch, offset, known, earlier)

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
            self._in_flight -= len(partition.open)
            self._uncommitted -= partition.completions - partition.covered

    def admit(self, position: Position, offset: int) -> Ticket | None:
        """Ticket for a received record, or None where it must not be handled: its partition is
        not assigned, the offset lies below what was received already, or it was finished in an
        earlier assignment."""
        partition = self._partitions.get(position)
        if partition is None or offset < partition.next_offset:
            return None
        partition.next_offset = offset + 1
        if partition.earlier is not None:
            if offset in partition.earlier:
                partition.highest_done = offset
                return None
            if offset >= partition.earlier.end:
                partition.earlier = None
        partition.open[offset] = None
        self._in_flight += 1
        return Ticket(position, offset, partition.epoch)

    def complete(self, ticket: Ticket) -> None:
        """Mark a record as done: all its outputs are confirmed."""
        partition = self._partitions.get(ticket.position)
        if partition is None or partition.epoch != ticket.epoch:
            return
        if ticket.offset not in partition.open:
            return
        del partition.open[ticket.offset]
        partition.highest_done = max(partition.highest_done, ticket.offset)
        partition.completions += 1
        self._in_flight -= 1
        self._uncommitted += 1

    def watermark(self, position: Position) -> int | None:
        """The offset to commit: the lowest that is not done."""
        partition = self._partitions.get(position)
        return partition.watermark if partition else None

    def committable(self) -> dict[Position, Mark]:
        """What was finished, or moved a watermark, since the last commit."""
        return {
            position: partition.mark()
            for position, partition in self._partitions.items()
            if partition.completions != partition.covered
            or partition.watermark != partition.committed
        }

    def committed(self, marks: Mapping[Position, Mark]) -> None:
        """Note a successful commit."""
        for position, mark in marks.items():
            partition = self._partitions.get(position)
            if partition is not None and partition.epoch == mark.epoch:
                partition.committed = mark.offset
                self._uncommitted -= mark.completions - partition.covered
                partition.covered = mark.completions
