"""The small pieces of the tolerant reader: blanks, comments, numbers, bare words.

Nothing here backtracks: every function moves forward from a position and says where it stopped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
"""Characters that Python does not call space and that models leave between tokens."""

OPENING_QUOTES = {
    '"': '"',
    "'": "'",
    "`": "`",
    "“": "”“",
    "„": "”“",
    "‟": "”“",
    "‘": "’‘",
    "‚": "’‘",
}
"""Each quote a string may open with, and the quotes that may close it."""

_ATOM_ENDS = frozenset(",]}:[{\"'`“”„‘’<>();=\\\n\r\t \u00a0")
_WRITTEN_SPACE = ("\\n", "\\r", "\\t")
_NUMBER_STARTS = frozenset("+-.0123456789")
_LITERALS = {"true": True, "false": False, "null": None, "none": None}
DOTS = ("...", "…")
"""What stands for something left out."""
_NO_VALUES = frozenset(("nan", "infinity", "inf", "undefined", "nil"))


class Unreadable(ValueError):
    """Text from which no value can be read.

    rule    cut_off, missing_value, elision, duplicate_key, not_json, too_deep, too_long, …
    offset  where reading stopped, in characters
    prose   the bracket was most likely part of a sentence and no JSON at all
    empty   nothing but keys and placeholders was read: a template, not an answer
    """

    empty = False

    def __init__(self, rule: str, message: str, offset: int, *, prose: bool = False) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.offset = offset
        self.prose = prose


@dataclass(frozen=True, slots=True)
class Bare:
    """A word without quotes; a value only where the schema lists exactly this word."""

    word: str


def skip_space(text: str, position: int) -> int:
    """The first position from here that is neither space nor invisible."""
    end = len(text)
    while position < end:
        char = text[position]
        if char > " " and not char.isspace() and char not in INVISIBLE:
            break
        position += 1
    return position


def skip_blank(text: str, position: int) -> tuple[int, bool]:
    r"""The first position that is neither space nor comment, and whether a comment was passed.

    A line break written as `\n` between tokens is space too.
    """
    commented = False
    while True:
        position = skip_space(text, position)
        if text.startswith(_WRITTEN_SPACE, position):
            after = text[position + 2 : position + 3]
            if not after.isalnum():
                position += 2
                continue
        if text.startswith("//", position) or text.startswith("#", position):
            line_end = text.find("\n", position)
            position = len(text) if line_end < 0 else line_end + 1
        elif text.startswith("/*", position):
            close = text.find("*/", position + 2)
            if close < 0:
                raise Unreadable("cut_off", "the text ends inside a comment", len(text))
            position = close + 2
        else:
            return position, commented
        commented = True


def read_atom(text: str, position: int) -> tuple[Any, int, str | None]:
    """An unquoted value: (value, end, kind of repair or None). Unknown words come back Bare."""
    start = position
    end = len(text)
    while position < end:
        char = text[position]
        if char in _ATOM_ENDS or char.isspace() or char in INVISIBLE:
            break
        if char == "/" and text[position + 1 : position + 2] in ("/", "*"):
            break
        position += 1
    word = text[start:position]
    if not word:
        raise Unreadable("not_json", _unexpected(text, start), start, prose=True)
    if position == end:
        raise Unreadable("cut_off", "the text ends before the JSON does", end)
    value, kind = read_word(word, start)
    return value, position, kind


def _unexpected(text: str, position: int) -> str:
    return f"a value was expected, but {text[position : position + 20]!r} stands there"


def read_word(word: str, offset: int = 0) -> tuple[Any, str | None]:
    """The value of one unquoted word and the kind of repair it took."""
    lower = word.lower()
    if lower in _LITERALS:
        value = _LITERALS[lower]
        return value, None if word in ("true", "false", "null") else "literal"
    if lower.lstrip("+-") in _NO_VALUES:
        raise Unreadable("not_a_value", f"{word[:20]} is no JSON value", offset)
    if word.startswith(DOTS):
        raise Unreadable("elision", "something was left out (…); write every value", offset)
    number = parse_number(word) if word[0] in _NUMBER_STARTS else None
    if number is None:
        return Bare(word), "unquoted"
    if isinstance(number, float) and not math.isfinite(number):
        raise Unreadable("overflow", f"the number {word[:20]} is too large", offset)
    return number, None if _is_plain(word) else "number"


def parse_number(word: str) -> int | float | None:
    """The number a word spells, exactly for integers; None if it spells none.

    Beyond JSON's grammar: a leading plus, `.5`, `5.`, and Python's underscores between digits.
    Leading zeros are refused, since 010 is ten or eight.
    """
    body = word[1:] if word[:1] in ("+", "-") else word
    mantissa, mark, exponent = body.partition("e" if "e" in body else "E")
    whole, dot, fraction = mantissa.partition(".")
    if exponent[:1] in ("+", "-"):
        exponent = exponent[1:]
    digits = [part for part in (whole, fraction) if part]
    if not digits or not all(_digits(part) for part in digits) or (mark and not _digits(exponent)):
        return None
    if len(whole) > 1 and whole[0] == "0":
        return None
    try:
        return float(word) if dot or mark else int(word)
    except ValueError:
        return None


def _digits(part: str) -> bool:
    groups = part.split("_")
    return all(group.isascii() and group.isdigit() for group in groups)


def _is_plain(word: str) -> bool:
    body = word.removeprefix("-")
    return (
        body[0] != "."
        and body[0] != "+"
        and "_" not in word
        and "."
        not in (
            body[-1],
            body.lower().partition("e")[0][-1],
        )
    )


def holds_bare(value: Any) -> bool:
    """Whether a word without quotes is left anywhere in the value."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, Bare):
            return True
        if isinstance(part, dict):
            stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)
    return False
