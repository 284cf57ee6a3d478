"""Lanes against a model that looks through everything each time (issue item 1)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from assay_runtime.lanes import Lanes

KEYS = [b"", b"a", b"b", b"c"]


class LanesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lanes: Lanes[tuple[int, bytes, bool]] = Lanes()
        self.waiting: list[tuple[int, bytes, bool]] = []
        self.running: set[bytes] = set()
        self.number = 0

    @rule(key=st.sampled_from(KEYS), first=st.booleans())
    def put(self, key: bytes, first: bool) -> None:
        item = (self.number, key, first)
        self.number += 1
        self.lanes.put(key, item, first=first)
        self.waiting.append(item)

    @rule()
    def take(self) -> None:
        runnable = [item for item in self.waiting if item[1] not in self.running]
        taken = self.lanes.take()
        if not runnable:
            assert taken is None
            return
        assert taken is not None, "a key that could run is forgotten"
        key, item = taken
        assert key not in self.running, "two of one key"
        same_key = [other for other in self.waiting if other[1] == key]
        urgent = [other for other in same_key if other[2]]
        assert item == min(urgent or same_key), "out of order within the key"
        if any(other[2] for other in runnable):
            assert item[2], "a first item waits behind another"
        self.waiting.remove(item)
        self.running.add(key)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.lanes.done(key)
        self.running.discard(key)

    @rule()
    def forget(self) -> None:
        self.lanes.forget()
        self.waiting.clear()

    @invariant()
    def counts(self) -> None:
        assert self.lanes.running == len(self.running)


LanesMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestLanes = LanesMachine.TestCase


def test_no_key_is_starved() -> None:
    """A lane that never empties gives way to the others after each of its items."""
    lanes: Lanes[int] = Lanes()
    for number in range(100):
        lanes.put(b"hot", number)
    lanes.put(b"cold", 100)
    order = []
    for _ in range(3):
        taken = lanes.take()
        assert taken is not None
        order.append(taken[1])
        lanes.done(taken[0])
    assert 100 in order


def test_nothing_is_kept_of_keys_that_are_done() -> None:
    """A million wallets pass through without a trace."""
    lanes: Lanes[int] = Lanes()
    for number in range(1_000):
        lanes.put(number, number, first=number % 3 == 0)
        taken = lanes.take()
        assert taken is not None
        lanes.done(taken[0])
    assert all(len(kept) == 0 for kept in vars(lanes).values())
