"""JSON paths that anybody may write, in a process or a pointer (SPEC S4)."""

from __future__ import annotations

import pytest

from assay_gate.paths import array_index, parse_path
from assay_gate.rules.template import _field
from assay_gate.verdict import GateError

NO_INDEX = ["²", "1¹", "٣", "-1", "", "9" * 5_000]


@pytest.mark.parametrize("text", NO_INDEX)
def test_what_is_no_index(text: str) -> None:
    """`str.isdigit` and `int` disagree about digits, and `int` about their number."""
    assert array_index(text) is None
    with pytest.raises(GateError):
        parse_path(f"$.a[{text}]")


def test_an_index() -> None:
    assert parse_path("$.a[10].b") == ["a", 10, "b"]


@pytest.mark.parametrize("text", [*NO_INDEX, "7"])
def test_a_template_shows_what_it_cannot_find_as_written(text: str) -> None:
    assert _field(f"a[{text}]", "", None, {"a": ["x"]}) == f"{{a[{text}]}}"
