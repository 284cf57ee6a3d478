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
_HEX, _DASH, _NO_TRACE, _NO_SPAN = b"0123456789abcdef", ord("-"), b"0" * 32, b"0" * 16
# Trace ids only tell traces apart; the operating system seeds this generator per process.
_random = random.Random()


class Span(NamedTuple):
    """One hop of a trace: 32 hex digits, 16 hex digits, whether it is sampled, and the span it
    follows ("" where the trace starts)."""

    trace_id: str
    span_id: str
    sampled: bool
    parent_id: str = ""

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def child(self) -> Span:
        """The next hop of the same trace."""
        return Span(self.trace_id, _span_id(), self.sampled, self.span_id)


class _Sampling:
    """The share of new traces that are sampled, set once per process."""

    rate = 1.0


def sample(rate: float) -> None:
    """From now on `rate` (0 to 1) of the traces that start here are sampled: every hop of such a
    trace logs its span."""
    _Sampling.rate = rate


def new_trace() -> Span:
    """A trace that starts here."""
    trace_id = f"{_random.getrandbits(128) or 1:032x}"
    return Span(trace_id, _span_id(), _random.random() < _Sampling.rate)


def parse_traceparent(text: str | None) -> Span | None:
    """The span named by a `traceparent`, or None where it is absent or malformed."""
    found = _TRACEPARENT.fullmatch(text) if text is not None else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if more is not None and version == "00":
        return None
    return Span(trace_id, span_id, flags[1] in _SAMPLED)


def span_after(header: bytes | None) -> Span:
    """The hop after the one that a `traceparent` names, or a new trace where it names none."""
    if header is None:
        return new_trace()
    # What every one of our own records has, read in half of the time.
    if len(header) == 55 and header.translate(None, _HEX) == b"---" and header[:3] == b"00-":
        trace_id, span_id = header[3:35], header[36:52]
        if header[35] == header[52] == _DASH and trace_id != _NO_TRACE and span_id != _NO_SPAN:
            sampled = chr(header[54]) in _SAMPLED
            return Span(trace_id.decode(), _span_id(), sampled, span_id.decode())
    parent = parse_traceparent(header.decode("utf-8", errors="replace"))
    return parent.child() if parent else new_trace()


def _span_id() -> str:
    return "%016x" % (_random.getrandbits(64) or 1)
