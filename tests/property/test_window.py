"""The window against a model that remembers everything (DESIGN §3, issue item 1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from assay_runtime.records import Position
from assay_runtime.window import Ticket, Window

POSITIONS = [Position("a", 0), Position("a", 1), Position("b", 0)]


@dataclass
class Assigned:
    """What the model knows of a partition's present assignment."""

    start: int
    received: list[int] = field(default_factory=list)
    finished: set[int] = field(default_factory=set)
    next_offset: int = 0

    @property
    def unfinished(self) -> set[int]:
        return set(self.received) - self.finished


class WindowMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.window = Window()
        self.model: dict[Position, Assigned] = {}
        self.live: list[tuple[Ticket, Assigned]] = []
        self.old: list[Ticket] = []

    @rule(position=st.sampled_from(POSITIONS), start=st.integers(0, 20))
    def assign(self, position: Position, start: int) -> None:
        self._retire(position)
        self.window.assign({position: start})
        self.model[position] = Assigned(start, next_offset=start)

    @rule(position=st.sampled_from(POSITIONS))
    def revoke(self, position: Position) -> None:
        self._retire(position)
        self.window.revoke([position])
        self.model.pop(position, None)

    def _retire(self, position: Position) -> None:
        self.old += [t for t, _ in self.live if t.position == position]
        self.live = [(t, a) for t, a in self.live if t.position != position]

    @rule(position=st.sampled_from(POSITIONS), ahead=st.integers(-5, 4))
    def admit(self, position: Position, ahead: int) -> None:
        """Offsets come in order, with gaps; what comes again or unasked is not admitted."""
        model = self.model.get(position)
        offset = (model.next_offset if model else 0) + ahead
        ticket = self.window.admit(position, offset)
        if model is None or ahead < 0:
            assert ticket is None
            return
        assert ticket is not None
        model.received.append(offset)
        model.next_offset = offset + 1
        self.live.append((ticket, model))

    @rule(position=st.sampled_from(POSITIONS), ahead=st.integers(-3, 6))
    def skip(self, position: Position, ahead: int) -> None:
        """Retention removed what would have been read next; what is in flight stays."""
        model = self.model.get(position)
        offset = (model.next_offset if model else 0) + ahead
        self.window.skip(position, offset)
        if model and ahead > 0:
            model.next_offset = offset

    @precondition(lambda self: self.live)
    @rule(data=st.data(), again=st.booleans())
    def complete(self, data: st.DataObject, again: bool) -> None:
        ticket, model = data.draw(st.sampled_from(self.live))
        self.window.complete(ticket)
        if again:
            self.window.complete(ticket)
        model.finished.add(ticket.offset)

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def complete_of_old_assignment(self, data: st.DataObject) -> None:
        before = self._state()
        self.window.complete(data.draw(st.sampled_from(self.old)))
        assert self._state() == before

    @rule()
    def commit(self) -> None:
        moved = self.window.committable()
        self.window.committed(moved)
        assert self.window.committable() == {}

    def _state(self) -> tuple[object, ...]:
        return (
            self.window.in_flight,
            [(p, self.window.watermark(p), self.window.held(p)) for p in POSITIONS],
        )

    @invariant()
    def never_past_the_lowest_unfinished(self) -> None:
        for position, offset in self.window.committable().items():
            unfinished = self.model[position].unfinished
            assert not unfinished or offset <= min(unfinished)

    @invariant()
    def watermark_is_exact(self) -> None:
        """Neither past the lowest unfinished offset nor needlessly behind it."""
        for position, model in self.model.items():
            expected = min(model.unfinished) if model.unfinished else model.next_offset
            assert self.window.watermark(position) == expected

    @invariant()
    def counts(self) -> None:
        assert self.window.in_flight == sum(len(m.unfinished) for m in self.model.values())
        for position in POSITIONS:
            model = self.model.get(position)
            assert self.window.held(position) == (len(model.unfinished) if model else 0)
            if model:
                above = [o for o in model.received if o >= self.window.watermark(position)]
                assert self.window.backlog(position) == len(above)

    @invariant()
    def only_assigned_partitions(self) -> None:
        assert set(self.window.positions()) == set(self.model)


WindowMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestWindow = WindowMachine.TestCase


def test_a_start_that_the_group_does_not_have_is_committed() -> None:
    """Without it, records that retention removes before the first commit would be missed
    without a trace."""
    window = Window()
    fresh, known, behind = POSITIONS
    window.assign({fresh: 0, known: 7, behind: 3}, {fresh: None, known: 7, behind: 9})
    assert window.committable() == {fresh: 0, behind: 3}
    window.committed({fresh: 0, behind: 3})
    assert window.committable() == {}
