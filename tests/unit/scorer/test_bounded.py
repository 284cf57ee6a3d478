"""A memory bounded by entries and bytes, against a plain list (DESIGN §3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.scorer.domain.bounded import Bounded

NAMES = st.sampled_from("abcde")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.integers(0, 12)),
        st.tuples(st.just("get"), NAMES, st.just(0)),
        st.tuples(st.just("drop"), NAMES, st.just(0)),
    ),
    max_size=40,
)


@given(steps=STEPS, entries=st.integers(0, 4), most_bytes=st.integers(0, 20))
def test_it_keeps_what_was_used_last(
    steps: list[tuple[str, str, int]], entries: int, most_bytes: int
) -> None:
    """The plain list holds (name, number, size), the last used last."""
    bounded: Bounded[int] = Bounded(entries, most_bytes)
    plain: list[tuple[str, int, int]] = []
    for number, (what, name, size) in enumerate(steps):
        found = [each for each in plain if each[0] == name]
        if what == "get":
            assert bounded.get(name) == (found[0][1] if found else None)
        else:
            bounded.drop(name) if what == "drop" else bounded.put(name, number, size)
        plain = [each for each in plain if each[0] != name]
        if what == "get":
            plain += found
        elif what == "put" and size <= most_bytes:
            plain.append((name, number, size))
        while len(plain) > entries or sum(each[2] for each in plain) > most_bytes:
            plain.pop(0)
        assert len(bounded) == len(plain)
        assert bounded.bytes == sum(each[2] for each in plain)


def test_what_was_asked_for_stays() -> None:
    """The one used longest ago goes, not the one kept longest."""
    bounded: Bounded[int] = Bounded(2, 100)
    bounded.put("a", 1, 1)
    bounded.put("b", 2, 1)
    bounded.get("a")
    bounded.put("c", 3, 1)
    assert [bounded.get(name) for name in "abc"] == [1, None, 3]
