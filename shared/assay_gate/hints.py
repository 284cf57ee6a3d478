"""What a misspelt name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def hint(name: object, known: Iterable[object]) -> str:
    """`; did you mean x?` where a known name is close, else the empty text."""
    close = difflib.get_close_matches(str(name), [str(k) for k in known], n=1)
    return f"; did you mean {close[0]}?" if close else ""
