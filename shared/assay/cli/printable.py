"""Texts of strangers on a terminal."""

from __future__ import annotations


def printable(text: object, *, lines: bool = False) -> str:
    """The text escaped so that it cannot steer a terminal; with `lines` its line breaks stay."""
    return "".join(
        c
        if c.isprintable() or (lines and c == "\n")
        else c.encode("unicode_escape", "backslashreplace").decode("ascii")
        for c in str(text)
    )
