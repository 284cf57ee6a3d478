"""What a misspelt name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def hint(name: object, known: Iterable[object], at_least: float = 0.6) -> str:
    """`; did you mean x?` where a known name is close, else the empty text.

    `at_least` is difflib's ratio, 0 to 1."""
    close = difflib.get_close_matches(str(name), [str(k) for k in known], 1, at_least)
    return f"; did you mean {close[0]}?" if close else ""
