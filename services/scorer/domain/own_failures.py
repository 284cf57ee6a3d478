"""When failures that look like an outage are one call's own, because others are answered; pure.

An outage costs no attempt, so a call that always meets one (a proxy's 502 because the backend dies
on it, a firewall's 403 for its text, a 429 because it is too large) would be repeated for ever: a
good probe ends every pause, and none of them lasts for the patience.
"""

from __future__ import annotations

import math

from services.scorer.domain.provider import BadGateway, ModelMisconfigured, ModelUnavailable

REPEATS = 2
"""How often one call is repeated after a failure that load does not explain."""
_TURNS = 10
"""How often a call may be passed over where load may explain it, and how many answers to each slot
it takes besides: with equal chances for all that wait, one call in e^10 is as unlucky as that."""


class Answers:
    """What an endpoint has answered: how many calls, and when the youngest of all that it
    answered, probes among them, was asked (seconds, monotonic)."""

    def __init__(self) -> None:
        self.calls = 0
        self.asked_at = -math.inf

    def call(self, asked_at: float) -> None:
        """A call was answered."""
        self.calls += 1
        self.probe(asked_at)

    def probe(self, asked_at: float) -> None:
        """A probe was answered."""
        self.asked_at = max(self.asked_at, asked_at)


class OwnFailures:
    """One call's failures that stand although something asked after the failure before was
    answered. What happens in an outage, which probes meet too, never counts."""

    def __init__(self, slots: int, patience_s: float) -> None:
        self._slots = slots
        self._patience_s = patience_s
        self._failed_at: float | None = None
        self._pointed = 0
        self._passed_over = 0
        self._calls = 0
        self._seen = 0
        self._alone_since = 0.0

    def enough(self, error: ModelUnavailable, answers: Answers, now: float, *, alone: bool) -> bool:
        """Notes a failure; whether the call has failed on its own by now. `alone`: no other call
        was in flight with it.

        401, 403 and the like say so after a few, and so does a 502 of a call that went alone while
        others were answered in between: a backend that dies fails all that it has in hand. A rate
        limit or a full queue passes calls over while others are answered, so for everything else
        it takes many turns, and either many answers to every slot or, where only probes are
        answered, as long as an outage may last.
        """
        last, self._failed_at = self._failed_at, now
        if last is None:
            self._calls = answers.calls
        if last is None or answers.asked_at <= last:
            return False
        own = alone and answers.calls > self._calls
        if isinstance(error, ModelMisconfigured) or (isinstance(error, BadGateway) and own):
            self._pointed += 1
            return self._pointed > REPEATS
        self._passed_over += 1
        if self._passed_over == 1 or answers.calls > self._seen:
            self._seen, self._alone_since = answers.calls, now
        return self._passed_over >= _TURNS and (
            answers.calls - self._calls >= _TURNS * self._slots
            or now - self._alone_since >= self._patience_s
        )
