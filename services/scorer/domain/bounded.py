"""A memory with two bounds: entries and bytes; what was used longest ago goes first. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class Bounded(Generic[V]):
    """Values by name, at most `entries` of them and `most_bytes` in all, as their owner sizes
    them. A value larger than all room is not kept."""

    def __init__(self, entries: int, most_bytes: int) -> None:
        self._entries = entries
        self._most_bytes = most_bytes
        self._values: OrderedDict[str, tuple[V, int]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    @property
    def bytes(self) -> int:
        """What the kept values take together."""
        return self._bytes

    def get(self, name: str) -> V | None:
        """The value, which is now the last used."""
        found = self._values.get(name)
        if found is None:
            return None
        self._values.move_to_end(name)
        return found[0]

    def put(self, name: str, value: V, size: int) -> None:
        """Keep a value of `size` bytes, in place of another of this name."""
        self.drop(name)
        if size > self._most_bytes:
            return
        self._values[name] = (value, size)
        self._bytes += size
        while len(self._values) > self._entries or self._bytes > self._most_bytes:
            _, (_, freed) = self._values.popitem(last=False)
            self._bytes -= freed

    def drop(self, name: str) -> None:
        """Forget a value, if it is there."""
        _, size = self._values.pop(name, (None, 0))
        self._bytes -= size
