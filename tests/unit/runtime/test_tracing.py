"""W3C trace context, version 00."""

from __future__ import annotations

from typing import Any

import pytest

from assay_runtime.tracing import new_trace, parse_traceparent, sample

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_round_trip() -> None:
    span = parse_traceparent(GOOD)
    assert span is not None
    assert span.traceparent == GOOD
    assert not parse_traceparent(GOOD[:-2] + "00").sampled  # type: ignore[union-attr]
    child = span.child()
    assert (child.trace_id, child.sampled) == (TRACE, True)
    assert child.span_id != SPAN
    assert child.parent_id == SPAN
    assert parse_traceparent(child.traceparent) == child._replace(parent_id="")


@pytest.mark.parametrize(
    "bad",
    [
        None, "", GOOD[:-1], GOOD + "-x", GOOD.upper(), GOOD.replace("-", "_"),
        f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01",
        f"zz-{TRACE}-{SPAN}-01", f"01-{TRACE}-{SPAN}-01x",
    ],
)  # fmt: skip
def test_malformed_is_absent(bad: str | None) -> None:
    assert parse_traceparent(bad) is None


def test_later_versions_may_be_longer() -> None:
    """The specification asks to read what is known of a higher version."""
    assert parse_traceparent(f"01-{TRACE}-{SPAN}-01-more") is not None


def test_sample_rate() -> None:
    """Decided where a trace starts; whoever continues it does as its start did."""
    try:
        sample(1.0)
        assert new_trace().sampled
        assert parse_traceparent(new_trace().traceparent) is not None
        sample(0.0)
        assert not new_trace().sampled
        assert parse_traceparent(GOOD).child().sampled  # type: ignore[union-attr]
    finally:
        sample(1.0)


def test_a_record_continues_its_senders_trace(make_record: Any) -> None:
    """The last traceparent counts; a bad one starts a new trace."""
    record = make_record(headers=(("traceparent", b"\xff"), ("traceparent", GOOD.encode())))
    assert record.span().trace_id == TRACE
    assert make_record(headers=(("traceparent", b"\xff"),)).span().trace_id != TRACE
    assert make_record(headers=(("traceparent", None),)).span().trace_id != TRACE
