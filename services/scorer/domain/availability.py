"""When a model endpoint counts as away: a pure state machine per (endpoint, model) (DESIGN §5).

CLOSED ──N failures in a row──► OPEN ──a probe failed after `patience_s`──► EXHAUSTED
   ▲                              │                                            │
   └────────── a success ─────────┴───────────────── a success ────────────────┘

OPEN: calls wait in place and only probes go out. EXHAUSTED: calls end as `unavailable` at once,
probes go on. Patience is continuous unavailability of the endpoint, never the age of an event:
it is counted from the moment of opening, and only a probe failed after it exhausts, so a process
that was stopped meanwhile asks once more before it gives up.

A suspicion (a hang, a refusal, a server error) costs the attempt that met it and says little
about the endpoint; only `suspicions_to_open` of them without any success between open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class State(Enum):
    CLOSED = "closed"
    OPEN = "open"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, slots=True)
class Policy:
    """Counts, and times in seconds. Probe intervals double from `probe_initial_s`."""

    failures_to_open: int = 3
    suspicions_to_open: int = 5
    patience_s: float = 300.0
    probe_initial_s: float = 1.0
    probe_max_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Availability:
    """The state at one moment; every event gives the next one. `now` is a monotonic clock in s."""

    policy: Policy
    state: State = State.CLOSED
    failures: int = 0
    suspicions: int = 0
    opened_at: float = 0.0
    next_probe_at: float = 0.0
    probe_interval: float = 0.0

    def succeeded(self) -> Availability:
        """A call or a probe was answered."""
        return Availability(self.policy)

    def call_failed(self, now: float) -> Availability:
        """Nothing answered a call; once OPEN only probes decide, however many calls were out."""
        if self.state is not State.CLOSED:
            return self
        failures = self.failures + 1
        if failures < self.policy.failures_to_open:
            return replace(self, failures=failures)
        return self._opened(now)

    def probe_failed(self, now: float) -> Availability:
        """Nothing answered a probe: the next one later, and no more patience once it is over."""
        if self.state is State.CLOSED:
            return self.call_failed(now)
        state = State.EXHAUSTED if now >= self.gives_up_at else self.state
        interval = min(self.probe_interval * 2, self.policy.probe_max_s)
        next_probe = now + interval
        if state is State.OPEN:  # one probe falls on the end of the patience, not long after it
            next_probe = min(next_probe, self.gives_up_at)
        return replace(self, state=state, next_probe_at=next_probe, probe_interval=interval)

    def suspected(self, now: float) -> Availability:
        """A call was taken and brought no answer; while OPEN it says nothing new."""
        if self.state is not State.CLOSED:
            return self
        suspicions = self.suspicions + 1
        if suspicions < self.policy.suspicions_to_open:
            return replace(self, suspicions=suspicions)
        return self._opened(now)

    @property
    def gives_up_at(self) -> float:
        """When the patience ends; meaningful while not CLOSED."""
        return self.opened_at + self.policy.patience_s

    def _opened(self, now: float) -> Availability:
        interval = self.policy.probe_initial_s
        return Availability(
            self.policy,
            State.OPEN,
            opened_at=now,
            next_probe_at=now + min(interval, self.policy.patience_s),
            probe_interval=interval,
        )
