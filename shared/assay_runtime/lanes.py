"""Lanes: which queued record may run next.

Pure; property-tested against a model in tests/property/test_lanes.py.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """One lane per key: at most one item of a key runs, the others wait in their order.

    Items put with `first` go before the rest of their key, in their own order, and keys that have
    such items are served before other keys.
    """

    def __init__(self) -> None:
        self._first: dict[Hashable, deque[T]] = {}
        self._rest: dict[Hashable, deque[T]] = {}
        # Keys with something to run and nothing running, each in one of the two.
        self._ready_first: OrderedDict[Hashable, None] = OrderedDict()
        self._ready: OrderedDict[Hashable, None] = OrderedDict()
        self._running: set[Hashable] = set()

    @property
    def running(self) -> int:
        return len(self._running)

    def put(self, key: Hashable, item: T, *, first: bool = False) -> None:
        (self._first if first else self._rest).setdefault(key, deque()).append(item)
        if key not in self._running:
            self._make_ready(key)

    def take(self) -> tuple[Hashable, T] | None:
        """The next item to run, None where every waiting key runs already; `done` must follow."""
        ready = self._ready_first or self._ready
        if not ready:
            return None
        key, _ = ready.popitem(last=False)
        self._running.add(key)
        lanes = self._first if key in self._first else self._rest
        item = lanes[key].popleft()
        if not lanes[key]:
            del lanes[key]
        return key, item

    def done(self, key: Hashable) -> None:
        """The running item of this key has ended; its lane goes to the end of the queue."""
        self._running.remove(key)
        self._make_ready(key)

    def forget(self) -> list[T]:
        """Drop what waits and say what that was; what runs goes on running."""
        waiting = (*self._first.values(), *self._rest.values())
        dropped = [item for lane in waiting for item in lane]
        for kept in (self._first, self._rest, self._ready_first, self._ready):
            kept.clear()
        return dropped

    def _make_ready(self, key: Hashable) -> None:
        if key in self._first:
            self._ready.pop(key, None)
            self._ready_first.setdefault(key)
        elif key in self._rest:
            self._ready.setdefault(key)
