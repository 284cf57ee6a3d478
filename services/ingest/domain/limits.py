"""Rate and concurrency limits: token buckets and slots, in whole numbers (issue 5 item 3).

Time is an argument, in nanoseconds of a clock that never goes back. The state belongs to one
process: n replicas together admit up to n times as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_MINUTE_NS = 60_000_000_000
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Allowance:
    """`per_minute` requests in the long run, `burst` at once after a quiet time, `concurrency`
    at the same time; each at least 1."""

    per_minute: int
    burst: int
    concurrency: int

    def __post_init__(self) -> None:
        if min(self.per_minute, self.burst, self.concurrency) < 1:
            raise ValueError("every part of an allowance is at least 1")


KEY_ALLOWANCE = Allowance(per_minute=60, burst=20, concurrency=8)
TENANT_ALLOWANCE = Allowance(per_minute=600, burst=100, concurrency=32)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no admission, by whose limit, and after how many whole seconds to ask again.

    `retry_after_s` is exact for a rate: asked then, with nobody else asking, there is admission.
    When a slot becomes free nobody can know, so for concurrency it is 1.
    """

    limit: Literal["rate", "concurrency"]
    holder: str
    retry_after_s: int


@dataclass(slots=True)
class _Holder:
    """The level is counted in token-minutes of nanoseconds (a token is `_MINUTE_NS` of them, a
    nanosecond brings `per_minute`), so that nothing is ever rounded."""

    allowance: Allowance
    level: int
    at_ns: int
    running: int = 0

    def refill(self, allowance: Allowance, now_ns: int) -> None:
        brought = max(0, now_ns - self.at_ns) * self.allowance.per_minute
        self.level = min(self.level + brought, allowance.burst * _MINUTE_NS)
        self.at_ns = max(self.at_ns, now_ns)
        self.allowance = allowance

    @property
    def missing_ns(self) -> int:
        """Time until there is a token."""
        return max(0, -((self.level - _MINUTE_NS) // self.allowance.per_minute))

    @property
    def idle(self) -> bool:
        return not self.running and self.level >= self.allowance.burst * _MINUTE_NS


class Limiter:
    """Buckets and slots of many holders, which start with a full bucket."""

    def __init__(self) -> None:
        self._holders: dict[str, _Holder] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def enter(self, allowances: Mapping[str, Allowance], now_ns: int) -> Refusal | None:
        """Take a token and a slot of every holder named, or nothing of any of them.

        None is admission; the caller owes a `leave` for the same holders.
        """
        holders = {name: self._refilled(name, a, now_ns) for name, a in allowances.items()}
        for name, holder in holders.items():
            if holder.running >= holder.allowance.concurrency:
                return Refusal("concurrency", name, 1)
        name, holder = max(holders.items(), key=lambda item: item[1].missing_ns)
        if holder.missing_ns:
            return Refusal("rate", name, -(-holder.missing_ns // _SECOND_NS))
        for holder in holders.values():
            holder.level -= _MINUTE_NS
            holder.running += 1
        return None

    def leave(self, names: Mapping[str, Allowance]) -> None:
        """Give the slots back; tokens come back with time only."""
        for name in names:
            self._holders[name].running -= 1

    def forget_idle(self, now_ns: int) -> None:
        """Drop holders with a full bucket and nothing running: they are as good as new."""
        for holder in self._holders.values():
            holder.refill(holder.allowance, now_ns)
        self._holders = {name: h for name, h in self._holders.items() if not h.idle}

    def _refilled(self, name: str, allowance: Allowance, now_ns: int) -> _Holder:
        holder = self._holders.get(name)
        if holder is None:
            holder = _Holder(allowance, allowance.burst * _MINUTE_NS, now_ns)
            self._holders[name] = holder
        holder.refill(allowance, now_ns)
        return holder
