"""W3C trace context across hops (https://www.w3.org/TR/trace-context/, version 00)."""

from __future__ import annotations

import random
from dataclasses import dataclass

_HEX = frozenset("0123456789abcdef")
# Trace ids only tell traces apart; the operating system seeds this generator per process.
_random = random.Random()


@dataclass(frozen=True, slots=True)
class Span:
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
    if text is None or len(text) < 55:
        return None
    version, trace_id, span_id, flags = text[0:2], text[3:35], text[36:52], text[53:55]
    if text[2] != "-" or text[35] != "-" or text[52] != "-" or version == "ff":
        return None
    if len(text) > 55 and (version == "00" or text[55] != "-"):
        return None
    if not _HEX.issuperset(version + trace_id + span_id + flags):
        return None
    if trace_id == "0" * 32 or span_id == "0" * 16:
        return None
    return Span(trace_id, span_id, bool(int(flags, 16) & 1))
