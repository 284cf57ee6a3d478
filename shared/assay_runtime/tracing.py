"""W3C trace context across hops (https://www.w3.org/TR/trace-context/, version 00)."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

# Version ff and ids of zeros are invalid; a later version may hold more behind a dash.
_TRACEPARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?",
    re.DOTALL,
)
# Odd last digits of the flags.
_SAMPLED = frozenset("13579bdf")
# Trace ids only tell traces apart; the operating system seeds this generator per process.
_random = random.Random()


class Span(NamedTuple):
    """One hop of a trace: 32 hex digits, 16 hex digits, whether it is sampled."""

    trace_id: str
    span_id: str
    sampled: bool

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def child(self) -> Span:
        """The next hop of the same trace."""
        return Span(self.trace_id, f"{_random.getrandbits(64) or 1:016x}", self.sampled)


def new_trace(sample_rate: float = 1.0) -> Span:
    """A trace that starts here; sampled with probability `sample_rate` (0 to 1)."""
    return Span(
        f"{_random.getrandbits(128) or 1:032x}",
        f"{_random.getrandbits(64) or 1:016x}",
        sample_rate >= 1.0 or _random.random() < sample_rate,
    )


def parse_traceparent(text: str | None) -> Span | None:
    """The span named by a `traceparent`, or None where it is absent or malformed."""
    found = _TRACEPARENT.fullmatch(text) if text is not None else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if more is not None and version == "00":
        return None
    return Span(trace_id, span_id, flags[1] in _SAMPLED)
