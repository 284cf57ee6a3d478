"""W3C trace context, version 00."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from assay_runtime.tracing import new_trace, parse_traceparent, sample, span_after

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


_ONE_BYTE = st.tuples(st.integers(0, 54), st.sampled_from(b"0fgF-_ \x00\xff"))


@given(
    st.lists(_ONE_BYTE, max_size=4),
    st.sampled_from(["", TRACE, SPAN]),
    st.sampled_from([0, 0, 1, 2, -1, -2]),
)
@example([(35, ord("0")), (36, ord("-")), (52, ord("0")), (53, ord("-"))], "", 0)
def test_the_quick_way_follows_what_the_grammar_allows(
    changed: list[tuple[int, int]], zeroed: str, cut: int
) -> None:
    """A header of our own length and any other, byte by byte beside the regular expression."""
    header = bytearray(GOOD.replace(zeroed, "0" * len(zeroed)).encode())
    for place, byte in changed:
        header[place] = byte
    header = header[cut:] if cut >= 0 else header[:cut]
    named = parse_traceparent(header.decode("utf-8", errors="replace"))
    following = span_after(bytes(header))
    if named is None:
        assert following.parent_id == ""
        assert following.trace_id != TRACE
    else:
        assert following == named.child()._replace(span_id=following.span_id)
        assert following.span_id != named.span_id
