"""The window against a model that remembers everything (DESIGN §3, issue items 1 and 3).

The model plays the broker too: it keeps what was last committed, as text, and a crash starts the
next assignment from nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from assay_runtime.finished import from_metadata, to_metadata
from assay_runtime.records import Position
from assay_runtime.window import Ticket, Window

POSITIONS = [Position("a", 0), Position("a", 1), Position("b", 0)]
LOG = "incarnation"


@dataclass
class Partition:
    """What the model knows of a partition: over its whole life, and of its assignment."""

    confirmed: set[int] = field(default_factory=set)
    group: tuple[int, str] = (0, "")
    assigned: bool = False
    next_offset: int = 0
    # Received in this assignment and not confirmed.
    unfinished: set[int] = field(default_factory=set)
    # Named as finished by the commit that the assignment started from.
    known: set[int] = field(default_factory=set)
    completed_since_commit: set[int] = field(default_factory=set)


class WindowMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.window = Window()
        self.model = {position: Partition() for position in POSITIONS}
        self.live: list[Ticket] = []
        self.old: list[Ticket] = []

    @rule(position=st.sampled_from(POSITIONS))
    def assign(self, position: Position) -> None:
        """From what the broker has; also where the same partition was held before."""
        self._retire(position)
        model = self.model[position]
        base, text = model.group
        finished = from_metadata(text, base, LOG)
        assert (finished is None) == (text == ""), "what was committed is understood"
        found = {position: finished} if finished else {}
        self.window.assign({position: base}, None, found)
        model.assigned, model.next_offset = True, base
        model.known = {o for o in model.confirmed if finished and o in finished}

    @rule(position=st.sampled_from(POSITIONS))
    def revoke(self, position: Position) -> None:
        """Or a crash: whatever was not committed is forgotten."""
        self._retire(position)
        self.window.revoke([position])

    def _retire(self, position: Position) -> None:
        self.old += [t for t in self.live if t.position == position]
        self.live = [t for t in self.live if t.position != position]
        model = self.model[position]
        model.assigned = False
        model.unfinished.clear()
        model.completed_since_commit.clear()

    @rule(position=st.sampled_from(POSITIONS), ahead=st.sampled_from([-5, -1, 0, 0, 0, 0, 1, 4]))
    def admit(self, position: Position, ahead: int) -> None:
        """Offsets come in order, with gaps; what comes again, unasked or finished is not
        admitted, everything else is."""
        model = self.model[position]
        offset = model.next_offset + ahead
        ticket = self.window.admit(position, offset)
        if not model.assigned or ahead < 0:
            assert ticket is None
            return
        model.next_offset = offset + 1
        if offset in model.known:
            assert ticket is None, "a finished record would run again"
            return
        assert ticket is not None, "a record would be lost"
        model.unfinished.add(offset)
        self.live.append(ticket)

    @rule(position=st.sampled_from(POSITIONS), ahead=st.integers(-3, 6))
    def skip(self, position: Position, ahead: int) -> None:
        """Retention removed what would have been read next; what is in flight stays."""
        model = self.model[position]
        offset = model.next_offset + ahead
        self.window.skip(position, offset)
        if model.assigned and ahead > 0:
            # Gone is gone: nobody can be asked to handle these.
            model.confirmed |= set(range(model.next_offset, offset))
            model.next_offset = offset

    @precondition(lambda self: self.live)
    @rule(data=st.data(), again=st.booleans())
    def complete(self, data: st.DataObject, again: bool) -> None:
        ticket = data.draw(st.sampled_from(self.live))
        self.window.complete(ticket)
        if again:
            self.window.complete(ticket)
        model = self.model[ticket.position]
        if ticket.offset in model.unfinished:
            model.unfinished.discard(ticket.offset)
            model.confirmed.add(ticket.offset)
            model.completed_since_commit.add(ticket.offset)

    @precondition(lambda self: self.old)
    @rule()
    def complete_of_old_assignments(self) -> None:
        """Also where the same offset is open again by now."""
        before = self._state()
        for ticket in self.old:
            self.window.complete(ticket)
        assert self._state() == before

    @rule(data=st.data(), limit=st.sampled_from([4_096, 4_096, 40, 0]))
    def commit(self, data: st.DataObject, limit: int) -> None:
        """What is completed while the broker answers is not covered by the commit."""
        marks = self.window.committable()
        for position, mark in marks.items():
            text = to_metadata(mark.offset, mark.end, mark.unfinished, LOG, limit)
            assert len(text) <= limit
            self.model[position].group = (mark.offset, text)
            self._check_commit(position)
            self.model[position].completed_since_commit.clear()
        if self.live and data.draw(st.booleans()):
            self.complete(data, False)
        self.window.committed(marks)

    def _check_commit(self, position: Position) -> None:
        model = self.model[position]
        base, text = model.group
        assert not model.unfinished or base <= min(model.unfinished)
        finished = from_metadata(text, base, LOG)
        if finished is None:
            return
        received = set(range(base, finished.end))
        named = {offset for offset in received if offset in finished}
        # Offsets between received ones are no records: the log has a gap there.
        assert not named & model.unfinished, "an unfinished record is named as finished"
        assert finished.end <= max([model.next_offset, *(o + 1 for o in model.known)])
        assert len(named) == finished.count()

    @rule()
    def a_commit_of_everything_repeats_nothing(self) -> None:
        """With room enough, all that is confirmed is known to whoever starts from the commit."""
        marks = self.window.committable()
        for position, mark in marks.items():
            model = self.model[position]
            text = to_metadata(mark.offset, mark.end, mark.unfinished, LOG)
            finished = from_metadata(text, mark.offset, LOG)
            for offset in model.completed_since_commit | model.known:
                assert offset < mark.offset or (finished is not None and offset in finished)

    def _state(self) -> tuple[object, ...]:
        return (
            self.window.in_flight,
            self.window.uncommitted,
            [(p, self.window.watermark(p), self.window.held(p)) for p in POSITIONS],
        )

    @invariant()
    def watermark_is_exact(self) -> None:
        """Neither past the lowest unfinished offset nor needlessly behind it."""
        for position, model in self.model.items():
            expected = min(model.unfinished, default=model.next_offset)
            assert self.window.watermark(position) == (expected if model.assigned else None)

    @invariant()
    def counts(self) -> None:
        models = self.model.values()
        assert self.window.in_flight == sum(len(m.unfinished) for m in models)
        assert self.window.uncommitted == sum(len(m.completed_since_commit) for m in models)
        for position, model in self.model.items():
            assert self.window.held(position) == len(model.unfinished)
            span = model.next_offset - min(model.unfinished, default=model.next_offset)
            assert self.window.span(position) == (span if model.assigned else 0)

    @invariant()
    def only_assigned_partitions(self) -> None:
        assert set(self.window.positions()) == {p for p, m in self.model.items() if m.assigned}


WindowMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestWindow = WindowMachine.TestCase


def test_a_start_that_the_group_does_not_have_is_committed() -> None:
    """Without it, records that retention removes before the first commit would be missed
    without a trace."""
    window = Window()
    fresh, known, behind = POSITIONS
    window.assign({fresh: 0, known: 7, behind: 3}, {fresh: None, known: 7, behind: 9})
    marks = window.committable()
    assert {p: mark.offset for p, mark in marks.items()} == {fresh: 0, behind: 3}
    window.committed(marks)
    assert window.committable() == {}


def test_a_finished_record_is_committed_though_the_watermark_stands() -> None:
    """Issue item 1: that is what the metadata is for."""
    window = Window()
    position = POSITIONS[0]
    window.assign({position: 5})
    tickets = [window.admit(position, offset) for offset in range(5, 9)]
    assert tickets[2] is not None
    window.complete(tickets[2])
    (mark,) = window.committable().values()
    assert (mark.offset, mark.end, mark.unfinished) == (5, 8, (5, 6))


def test_a_second_crash_forgets_nothing_of_the_first() -> None:
    """Finished records that were not received again before the second crash stay finished."""
    position = POSITIONS[0]
    first = Window()
    first.assign({position: 0})
    tickets = [first.admit(position, offset) for offset in range(10)]
    for offset in (1, 2, 3, 5, 6, 9):
        ticket = tickets[offset]
        assert ticket is not None
        first.complete(ticket)
    text = ""
    window = first
    for _ in range(3):
        (mark,) = window.committable().values()
        text = to_metadata(mark.offset, mark.end, mark.unfinished, LOG)
        finished = from_metadata(text, mark.offset, LOG)
        assert finished is not None
        assert [o for o in range(10) if o not in finished and o >= mark.offset] == [0, 4, 7, 8]
        window = Window()
        window.assign({position: mark.offset}, {position: None}, {position: finished})
        assert window.admit(position, 0) is not None
        assert window.admit(position, 1) is None
