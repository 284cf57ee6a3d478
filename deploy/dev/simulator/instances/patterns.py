"""Texts that match a regular expression, drawn from Python's own parse of it.

ECMA 262 syntax is rewritten where Python spells it differently. Look-arounds, back-references and
boundaries are not aimed at: the caller checks what it gets and draws again.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from random import Random
from typing import Any

from deploy.dev.simulator.instances.failures import Unsatisfiable

# Public as sre_parse up to Python 3.10; the tree it makes has been the same for twenty years.
_parser: Any = re._parser  # type: ignore[attr-defined]

_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_CATEGORIES = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_SPACE": " ",
    "CATEGORY_WORD": _LETTERS + "0123456789_",
}
_PROPERTIES = {"L": "a-zA-Z", "Letter": "a-zA-Z", "Lu": "A-Z", "Ll": "a-z", "N": "0-9", "Nd": "0-9"}
_PROPERTY = re.compile(r"\\p\{(\w+)\}")
_MOST_REPEATS = 100_000


@lru_cache(maxsize=1024)
def portable(pattern: str) -> str:
    """An ECMA 262 pattern as Python writes it: named groups and a few Unicode properties."""
    pattern = re.sub(r"\(\?<(?![=!])", "(?P<", pattern)
    pattern = re.sub(r"\\k<(\w+)>", r"(?P=\1)", pattern)
    inside = False
    out = []
    for piece in re.split(r"(\\p\{\w+\}|\\.|[\[\]])", pattern):
        if found := _PROPERTY.fullmatch(piece):
            ranges = _PROPERTIES.get(found[1], "a-z")
            piece = ranges if inside else f"[{ranges}]"
        elif piece in "[]" and piece:
            inside = piece == "["
        out.append(piece)
    return "".join(out)


@lru_cache(maxsize=1024)
def _parsed(pattern: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _parser.parse(portable(pattern))
    except (re.error, OverflowError, RecursionError):
        raise Unsatisfiable("pattern") from None


def sample(pattern: str, rng: Random, reach: int, *, exactly: bool = False) -> str:
    """One text; each repetition is taken up to (or `exactly`) `reach` times above its least."""
    return _Drawing(rng, reach, exactly).sequence(_parsed(pattern))


class _Drawing:
    def __init__(self, rng: Random, reach: int, exactly: bool) -> None:
        self._rng = rng
        self._reach = reach
        self._exactly = exactly
        self._groups: dict[int, str] = {}

    def sequence(self, nodes: Any) -> str:
        return "".join(self._node(str(code), argument) for code, argument in nodes)

    def _node(self, code: str, argument: Any) -> str:
        if code == "LITERAL":
            return chr(argument)
        if code == "NOT_LITERAL":
            return self._rng.choice(_PRINTABLE.replace(chr(argument), ""))
        if code == "ANY":
            return self._rng.choice(_PRINTABLE)
        if code == "IN":
            return self._rng.choice(_class(argument))
        if code == "BRANCH":
            return self.sequence(self._rng.choice(argument[1]))
        if code in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            return self._repeat(*argument)
        if code == "SUBPATTERN":
            text = self.sequence(argument[3])
            if argument[0] is not None:
                self._groups[argument[0]] = text
            return text
        if code == "ATOMIC_GROUP":
            return self.sequence(argument)
        if code == "GROUPREF":
            return self._groups.get(argument, "")
        if code in ("AT", "ASSERT", "ASSERT_NOT"):
            return ""
        raise Unsatisfiable("pattern")

    def _repeat(self, least: int, most: Any, body: Any) -> str:
        highest = min(int(most), least + self._reach)
        if highest > _MOST_REPEATS:
            raise Unsatisfiable("pattern")
        times = highest if self._exactly else self._rng.randint(least, highest)
        return "".join(self.sequence(body) for _ in range(times))


def _class(members: Any) -> str:
    """The characters of a class; beyond ASCII the first few of each range stand for all."""
    found: list[str] = []
    negated = False
    for code, argument in members:
        name = str(code)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            found.append(chr(argument))
        elif name == "RANGE":
            first, last = argument
            found += map(chr, range(first, min(last, first + 128) + 1))
        elif name == "CATEGORY":
            category = str(argument)
            chars = _CATEGORIES.get(category.replace("_NOT_", "_"), "")
            inverse = [char for char in _PRINTABLE if char not in chars]
            found += inverse if "_NOT_" in category else list(chars)
    if negated:
        found = [char for char in _PRINTABLE if char not in set(found)]
    visible = [char for char in found if char >= " " and not 0xD800 <= ord(char) <= 0xDFFF]
    if not (visible or found):
        raise Unsatisfiable("pattern")
    return "".join(visible or found)
