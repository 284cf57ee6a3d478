"""The shapes of telephone numbers: plus sign, brackets, groups of digits."""

from __future__ import annotations

import re

from assay_runtime.redaction.runs import Run

_NORTH_AMERICAN = re.compile(r"1?[2-9](?!11)[0-9]{2}[2-9](?!11)[0-9]{6}")
_MOBILE_IN = re.compile(r"(?:91|0)?[6-9][0-9]{9}")
_MOBILE_GB = re.compile(r"07[1-9][0-9]{8}")
_TRUNK = re.compile(r"0[1-9][0-9]{7,10}")
_MOBILE_CN = re.compile(r"1[3-9][0-9]{9}")


def is_shape(run: Run, first: int, last: int) -> bool:
    """Whether these groups are written as hardly anything but a telephone number is."""
    lengths = run.lengths(first, last)
    total = sum(lengths)
    if not 9 <= total <= 12:
        return False
    digits = run.digits(first, last)
    bracketed = _bracketed(run, first)
    if _NORTH_AMERICAN.fullmatch(digits) and (
        lengths in ((3, 3, 4), (1, 3, 3, 4)) or (bracketed and lengths == (3, 7))
    ):
        return True
    if len(lengths) == 1:
        return _MOBILE_GB.fullmatch(digits) is not None
    if _MOBILE_IN.fullmatch(digits) and lengths in ((5, 5), (2, 5, 5), (1, 5, 5), (6, 5), (2, 10)):
        return True
    rest = lengths[1:]
    if digits[0] == "0" and digits[1] != "0":
        whole = total <= 11 or lengths == (4, 4, 4)
        head = 2 <= lengths[0] <= 6 or (lengths[0] == 1 and bracketed)
        return whole and head and len(lengths) <= 5 and all(2 <= size <= 8 for size in rest)
    return (
        bracketed
        and 2 <= lengths[0] <= 4
        and total <= 11
        and len(rest) == 2
        and all(3 <= size <= 5 for size in rest)
    )


def is_likely(digits: str, lengths: tuple[int, ...]) -> bool:
    """Whether the digits are those of a complete national number somewhere, or are grouped."""
    return is_complete(digits) or (
        len(lengths) > 1 and len(digits) <= 13 and all(size <= 5 for size in lengths)
    )


def is_complete(digits: str) -> bool:
    """Whether they are a North American, Indian or Chinese number, or start with a trunk 0."""
    return any(
        shape.fullmatch(digits) for shape in (_NORTH_AMERICAN, _MOBILE_IN, _MOBILE_CN, _TRUNK)
    )


def plus_sign(run: Run, first: int) -> str:
    """The plus sign before a run, also URL-encoded and also before a bracket, as it is written."""
    start = run.groups[first][0]
    ahead = run.text[max(0, start - 5) : start]
    for sign in ("+", "+(", "%2B", "%2b", "+ "):
        if first == 0 and ahead.endswith(sign) and not ahead[: -len(sign)][-1:].isdigit():
            return sign
    return ""


def _bracketed(run: Run, first: int) -> bool:
    start = run.groups[first][0]
    return run.text[start - 1 : start] == "(" and ")" in run.gaps[first]


def start_of(run: Run, first: int, last: int) -> int:
    """Where the number starts with its plus sign and a bracket that it also closes."""
    start = run.groups[first][0] - len(plus_sign(run, first))
    opened = run.text[start - 1 : start] == "(" and start > 0
    inside = run.text[start : run.groups[last][1]]
    return start - 1 if opened and inside.count(")") > inside.count("(") else start
