"""The fast path: correct JSON, read once by the C scanner of the standard library.

What it refuses goes to the tolerant reader, which knows why: broken syntax, duplicate keys,
NaN and Infinity, numbers that overflow, lone surrogates.
"""

from __future__ import annotations

import json
import math
import threading
from typing import Any

from assay_gate.values import deeper_than, encodable


class NotStrict(ValueError):
    """The text is no strict JSON of one reading."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotStrict("duplicate key")
    return members


def _constant(name: str) -> Any:
    raise NotStrict(name)


class StrictReader(threading.local):
    """One scanner for each thread; `whole_float` says whether the last text held one like 5.0."""

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self.whole_float = False
        decoder: Any = json.JSONDecoder(
            object_pairs_hook=_object, parse_float=self._float, parse_constant=_constant
        )
        self._scan = decoder.scan_once

    def _float(self, digits: str) -> float:
        number = float(digits)
        if number.is_integer():
            self.whole_float = True
        elif not math.isfinite(number):
            raise NotStrict("overflow")
        return number

    def read(self, text: str) -> Any:
        """The value of a text that is JSON from end to end; raises NotStrict for any other."""
        start = 0
        if text[:1] in " \t\n\r":
            start = len(text) - len(text.lstrip(" \t\n\r"))
        value, end = self.read_at(text, start)
        if end != len(text) and text[end:].strip(" \t\n\r"):
            raise NotStrict("text after the value")
        return value

    def read_at(self, text: str, start: int) -> tuple[Any, int]:
        """The JSON value that begins at `start` and where it ends; raises NotStrict."""
        self.whole_float = False
        try:
            value, end = self._scan(text, start)
        except (StopIteration, ValueError, RecursionError) as error:
            raise NotStrict(str(error)) from None
        escaped = "\\ud" in text or "\\uD" in text
        if (escaped and not _clean(value)) or not encodable(text):
            raise NotStrict("lone surrogate")
        if text.count("{") + text.count("[") > self.max_depth and deeper_than(
            value, self.max_depth
        ):
            raise NotStrict("too deep")
        return value, end


def _clean(value: Any) -> bool:
    try:
        return encodable(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        return False
