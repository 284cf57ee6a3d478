"""A JSON value cut down to a bounded number of characters, so that showing it is bounded. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Longest text shown, and characters of all texts, numbers and keys of one value. Redaction takes
# up to some 10 us a character of hostile text, so a value costs seconds at worst.
MOST_TEXT = 65_536
MOST_IN_ALL = 262_144
# What a number, a key's quotes, or an empty value counts; texts up to _SMALL are always shown.
_LEAST = 8
_SMALL = 32

Shorten = Callable[[str, int, str], str]
"""(text, length, key it stands under) to a text of about that length."""


def clip(value: Any, shorten: Shorten) -> tuple[Any, bool]:
    """A copy with what is too long shortened or left out, and whether anything was. What comes
    first in the value is kept first; every gap says what is missing. Depth is not limited."""
    left = MOST_IN_ALL
    clipped = False
    holder: list[Any] = [None]
    open_: list[tuple[Any, Any, Any, str]] = [(holder, 0, value, "")]
    while open_:
        target, place, source, key = open_.pop()
        if isinstance(source, dict):
            names = list(source)
            kept, left = _fitting([len(name) + _LEAST for name in names], left)
            made: dict[str, Any] = dict.fromkeys(names[:kept])
            open_ += [(made, name, source[name], name) for name in reversed(names[:kept])]
            if kept < len(names):
                clipped = True
                made["…"] = f"{len(names) - kept:,} more members are not shown"
            target[place] = made
        elif isinstance(source, list):
            kept, left = _fitting([_LEAST] * len(source), left)
            items: list[Any] = [None] * kept
            open_ += [(items, at, source[at], key) for at in range(kept - 1, -1, -1)]
            if kept < len(source):
                clipped = True
                items.append(f"… {len(source) - kept:,} more items are not shown")
            target[place] = items
        elif isinstance(source, str):
            most = max(_SMALL, min(MOST_TEXT, left))
            left -= min(len(source), most)
            if len(source) > most:
                clipped = True
                source = f"{shorten(source, most, key)}… of {len(source):,} characters"
            target[place] = source
        else:
            target[place] = source
    return holder[0], clipped


def _fitting(sizes: list[int], left: int) -> tuple[int, int]:
    """How many of the sizes fit, and what is left then; one always fits."""
    for count, size in enumerate(sizes):
        if size > left and count:
            return count, left
        left -= size
    return len(sizes), left
