"""Reading numbers and sections out of a wallet record that promises nothing.

Nothing here raises on a value JSON can hold. Whatever is not the record's own good value is
reported with its JSON pointer and a reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay.json_kinds import kind

MAX_REPORTED = 100
_EXCERPT = 80
_KEY_SHOWN = 64
# A plain decimal number. "1,262" is 1262 or 1.262 depending on who wrote it, and a hex string may
# be a count or an amount in wei: neither is guessed at.
_PLAIN_NUMBER = re.compile(r"[+-]?\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_MISSING = object()

Path = tuple[str, ...]
Number = int | float


class DirtyRecord:
    """A record and the list of what had to be defaulted while reading it."""

    def __init__(self, record: object) -> None:
        self._record = record
        self.defaulted: list[dict[str, str]] = []
        self._omitted = 0
        self._errors_seen: set[Path] = set()

    def report(self, path: Path, reason: str) -> None:
        """Notes a value that is not the record's own; the list is bounded."""
        if len(self.defaulted) < MAX_REPORTED:
            self.defaulted.append({"path": pointer(path), "reason": reason})
            return
        self._omitted += 1
        more = {"path": "", "reason": f"{self._omitted} more, not listed"}
        self.defaulted[MAX_REPORTED:] = [more]

    def find(self, path: Path) -> tuple[Any, str]:
        """The value at `path` and "", or None and why there is none."""
        value = self._record
        for depth, key in enumerate(path):
            if not isinstance(value, Mapping):
                place = pointer(path[:depth]) or "the record"
                return None, f"{place} is {kind(value)}, not an object"
            self._report_error_key(value, path[:depth])
            value = value.get(key, _MISSING)
            if value is _MISSING:
                if depth + 1 == len(path):
                    return None, "missing"
                return None, f"{pointer(path[: depth + 1])} is missing"
        return (None, "null") if value is None else (value, "")

    def section(self, path: Path) -> Mapping[str, Any]:
        """The object at `path`, empty and reported where there is none."""
        value, problem = self.find(path)
        if isinstance(value, Mapping):
            self._report_error_key(value, path)
            return value
        self.report(path, problem or f"is {kind(value)}, not an object")
        return {}

    def items(self, path: Path) -> Sequence[Any] | None:
        """The list at `path`, or None; nothing is reported."""
        value, _ = self.find(path)
        return value if isinstance(value, list) else None

    def number(self, path: Path, most: Number) -> Number:
        """The number at `path` within 0..most; 0 and a report where there is none."""
        value, problem = self.find(path)
        return self._bounded(path, most, *((0, problem) if problem else plain_number(value)))

    def count(self, path: Path, most: int) -> int:
        """The whole number at `path` within 0..most; a fraction is cut off and reported."""
        value = self.number(path, most)
        whole = int(value)
        if whole != value:
            self.report(path, f"has a fraction, cut to {whole}")
        return whole

    def _bounded(self, path: Path, most: Number, value: Number, problem: str) -> Number:
        if problem:
            self.report(path, problem)
            return 0
        if value < 0:
            self.report(path, "is negative, taken as 0")
            return 0
        if value > most:
            self.report(path, f"is beyond all reason, bounded to {most}")
            return most
        return value

    def _report_error_key(self, section: Mapping[str, Any], path: Path) -> None:
        """An aggregator that failed puts `error` into a section and leaves zeros or nothing."""
        error = section.get("error")
        if not error or path in self._errors_seen:
            return
        self._errors_seen.add(path)
        text = excerpt(error) if isinstance(error, str) else kind(error)
        self.report(path, f"reports an error, its values are taken as they stand: {text}")


def plain_number(value: object) -> tuple[Number, str]:
    """The finite number that `value` is or plainly spells, and ""; else 0 and why not."""
    if isinstance(value, bool):
        return 0, "is a boolean, not a number"
    if isinstance(value, str):
        text = value.strip()
        if not _PLAIN_NUMBER.fullmatch(text):
            return 0, f"is the text {excerpt(value)!r}, not a plain number"
        value = float(text) if set(text) & set(".eE") else int(text)
    if isinstance(value, int):
        return value, ""
    if isinstance(value, float):
        return (value, "") if math.isfinite(value) else (0, "is not a finite number")
    return 0, f"is {kind(value)}, not a number"


def pointer(path: Path) -> str:
    """JSON pointer of a path; keys of the record are made printable and cut."""
    tokens = (printable(key[:_KEY_SHOWN]).replace("~", "~0").replace("/", "~1") for key in path)
    return "".join(f"/{token}" for token in tokens)


def excerpt(text: str) -> str:
    """The beginning of untrusted text, on one line."""
    return printable(text[:_EXCERPT])


def printable(text: str) -> str:
    """Text with control characters, lone surrogates and the like as U+FFFD."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\ufffd" for char in text)
