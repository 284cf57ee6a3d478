"""Finished offsets as text: what is read back is what was written, or less, never more."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_runtime.finished import METADATA_BYTES, from_metadata, to_metadata

OFFSETS = st.sets(st.integers(0, 400) | st.integers(0, 2**40), max_size=80)


@given(
    base=st.integers(0, 2**62),
    unfinished=OFFSETS,
    beyond=st.integers(0, 300),
    limit=st.integers(0, 200) | st.just(METADATA_BYTES),
)
def test_nothing_unfinished_reads_as_finished(
    base: int, unfinished: set[int], beyond: int, limit: int
) -> None:
    """Also where the text is cut to the limit; with room enough, nothing finished is left out."""
    offsets = sorted(base + n for n in unfinished)
    end = max(offsets, default=base) + 1 + beyond
    text = to_metadata(base, end, offsets, "log", limit)
    assert len(text) <= limit
    found = from_metadata(text, base, "log")
    if found is None:
        assert text == ""
        return
    assert not any(offset in found for offset in offsets)
    assert base - 1 not in found
    assert end not in found
    if limit == METADATA_BYTES:
        assert (found.end, found.unfinished) == (end, frozenset(offsets))
        assert found.count() == end - base - len(offsets)


@given(
    base=st.integers(0, 2**62),
    unfinished=OFFSETS,
    other=st.integers(0, 2**62),
    log=st.text(max_size=8),
)
def test_another_offset_or_incarnation_is_none_of_ours(
    base: int, unfinished: set[int], other: int, log: str
) -> None:
    """An offset that somebody reset, a mirrored group, a topic made anew: all is read again."""
    offsets = sorted(base + n for n in unfinished)
    text = to_metadata(base, max(offsets, default=base) + 1, offsets, "log")
    if other != base:
        assert from_metadata(text, other, "log") is None
    if log != "log":
        assert from_metadata(text, base, log) is None


@given(st.text() | st.binary().map(lambda raw: "1:0f2a:7:" + base64.b64encode(raw).decode()))
def test_metadata_of_others_is_harmless(text: str) -> None:
    found = from_metadata(text, 7, "log")
    assert found is None


@given(st.binary(max_size=60))
def test_any_data_that_is_understood_is_consistent(data: bytes) -> None:
    """Damaged text may be refused; what it yields stays between base and end."""
    head = to_metadata(7, 8, [], "log").rpartition(":")[0]
    found = from_metadata(f"{head}:{base64.b64encode(data).decode()}", 7, "log")
    if found is not None:
        assert all(found.base <= offset < found.end for offset in found.unfinished)
        assert found.count() >= 0


def test_a_full_window_fits() -> None:
    """256 slots on one partition: 1,024 in flight, every second offset finished."""
    unfinished = list(range(1_000_000, 1_002_048, 2))
    text = to_metadata(1_000_000, 1_002_048, unfinished, "log")
    found = from_metadata(text, 1_000_000, "log")
    assert found is not None
    assert found.unfinished == frozenset(unfinished)
    assert len(text) < METADATA_BYTES


@pytest.mark.parametrize("limit", range(20, 60))
def test_what_has_no_room_counts_as_unfinished(limit: int) -> None:
    """Cut anywhere: the end comes down to the first offset that could not be named."""
    unfinished = list(range(10, 50, 2))
    found = from_metadata(to_metadata(10, 60, unfinished, "l", limit), 10, "l")
    if found is not None:
        assert found.end < 60
        assert not any(offset in found for offset in unfinished)


@pytest.mark.parametrize("data", [b"\x85", b"\x05\x80", b"\x05\x01\xff", b"\x80" * 10 + b"\x01"])
def test_a_number_that_is_cut_off_or_endless_is_none(data: bytes) -> None:
    """Half a number would name other offsets than were meant."""
    head = to_metadata(7, 8, [], "l").rpartition(":")[0]
    assert from_metadata(f"{head}:{base64.b64encode(data).decode()}", 7, "l") is None


def test_the_count_below_an_offset() -> None:
    found = from_metadata(to_metadata(10, 20, [10, 15], "l"), 10, "l")
    assert found is not None
    assert [found.count(below=n) for n in (5, 10, 11, 16, 20, 99)] == [0, 0, 0, 4, 8, 8]
