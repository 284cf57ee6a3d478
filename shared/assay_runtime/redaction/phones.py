"""Telephone numbers: international by calling code, national by shape, others where named.

A number after `+` needs a calling code and a length in use there. Ranges that are reserved for
fiction (07700 900xxx, 555-01xx) count: whoever writes them means a telephone.
"""

from __future__ import annotations

import re

from assay_runtime.redaction.calling_codes import calling_code
from assay_runtime.redaction.cues import Context
from assay_runtime.redaction.phone_shapes import (
    is_complete,
    is_likely,
    is_shape,
    plus_sign,
    start_of,
)
from assay_runtime.redaction.runs import Run
from assay_runtime.redaction.shields import mark_of
from assay_runtime.redaction.span import EMAIL, PHONE, Span
from assay_runtime.redaction.vocabulary import PHONE_LINES, PHONE_NOUNS, PHONE_VERBS

_LOCAL_LEAST, _MOST = 7, 15
_FULL = 10
_MOST_GROUPS = 7
# Deep inside a run no word is beside a number.
_NEAR_EDGE = 3
_GAPS = frozenset(["", " ", "-", ".", "/", ")", "(", "  ", ") ", " (", ")-", "-(", " - ", ") (",
                   ")(", ").", " -", "- "])  # fmt: skip
_DATE = re.compile(r"(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])")
_UNIX_TIME = re.compile(r"1[4-9][0-9]{8}(?:[0-9]{3})?")  # seconds or milliseconds, 2014 to 2033
_JOINED = re.compile(r"[\s,;/|&\"'\\()]{0,6}(?:or|and|und|et|y|o|ou)?[\s\"'(+]{0,4}")
_MOST_JOINED = 14
_PHONE_MARK, _EMAIL_MARK = mark_of(PHONE), mark_of(EMAIL)
_MY_NUMBER = re.compile(
    r"\b(?:my|his|her|their|our|your)\s(?:\w{1,24}\s)?(?:number|no\.?|digits)\b", re.IGNORECASE
)


def find_phone(run: Run, first: int, free: int, after: int) -> tuple[Span, int] | None:
    """The number that starts with this group, and its last group.

    Groups from `free` are taken; `after` is where the last telephone number ended, or -1.
    """
    last = _international(run, first, free)
    if last is None:
        last = _national(run, first, free)
    if last is None:
        last = _named(run, first, free, after)
    if last is None:
        return None
    return Span(start_of(run, first, last), run.groups[last][1], PHONE), last


def _international(run: Run, first: int, free: int) -> int | None:
    """After a plus sign, or after 00 and with separators."""
    plus = plus_sign(run, first)
    digits = run.digits(first, min(first + _MOST_GROUPS, free) - 1)
    if not plus:
        if not digits.startswith("00"):
            return None
        digits = digits[2:]
    known = calling_code(digits)
    if known is None:
        return None
    code, least, most = known
    best = None
    size = -len(code) - (0 if plus else 2)
    for last in range(first, min(first + _MOST_GROUPS, free)):
        start, end = run.groups[last]
        trunk = last > first and run.text[start:end] == "0" and run.text[start - 1] == "("
        size += 0 if trunk else end - start
        lone = end - start == 1 and size > least
        if least <= size <= most and not lone and not run.tied_to_digits(first, last):
            best = last
        if size >= most or run.gaps[last] not in _GAPS:
            break
    if best is None:
        return None
    context = _context(run, first, best)
    if context.is_amount:
        return None
    if not plus and best == first:
        return best if context.names(PHONE_NOUNS | PHONE_VERBS) else None
    return best


def _national(run: Run, first: int, free: int) -> int | None:
    """A shape that hardly anything but a telephone number has, unless it is called otherwise."""
    if run.tied_to_word(first) or plus_sign(run, first):
        return None
    best = None
    for last in range(first, min(first + _MOST_GROUPS, free)):
        if last > first and run.gaps[last - 1] not in _GAPS:
            break
        if is_shape(run, first, last) and not run.tied_to_digits(first, last):
            best = last
    if best is None:
        return None
    context = _context(run, first, best)
    if context.is_amount:
        return None
    if context.names(PHONE_NOUNS | PHONE_VERBS):
        return best
    return None if context.denies() or _is_in_list(run, first, best) else best


def _is_in_list(run: Run, first: int, last: int) -> bool:
    """Whether it may be a few of many numbers with spaces between them."""
    neighbours = {run.gaps[first - 1]} if first else set()
    if last + 1 < len(run.groups):
        neighbours.add(run.gaps[last])
    spaced = first < last and run.inner_gaps(first, last) == {" "}
    return spaced and " " in neighbours and not run.digits(first, last).startswith("0")


def _named(run: Run, first: int, free: int, after: int) -> int | None:
    """What stands beside a word such as `phone`, or closes a list of telephone numbers."""
    last = _extent(run, first, free)
    if last is None or run.tied_to_digits(first, last):
        return None
    inside = first > _NEAR_EDGE and last + 1 < len(run.groups)
    digits = run.digits(first, last)
    listed = _is_listed(run.text, after, start_of(run, first, last), digits)
    if inside and not listed:
        return None
    is_time = first == last and (_DATE.fullmatch(digits) or _UNIX_TIME.fullmatch(digits))
    if len(digits) < _LOCAL_LEAST or is_time:
        return None
    context = _context(run, first, last)
    if context.is_amount:
        return None
    likely = is_likely(digits, run.lengths(first, last))
    if listed:
        return last if likely else None
    if context.names(PHONE_NOUNS):
        near = any(word in PHONE_NOUNS for word in context.beside)
        return last if likely or near else None
    if likely and (context.names(PHONE_VERBS) or context.after & PHONE_LINES):
        return last
    if likely and _MY_NUMBER.search(context.before) and not context.denies():
        return last
    return None


def _is_listed(text: str, after: int, start: int, digits: str) -> bool:
    """Whether a comma, an `or` or their like joins it to another telephone number or an e-mail
    address; `after` is where the last telephone number ended."""
    least = max(0, start - _MOST_JOINED - 1)
    after = max(after, text.rfind(_PHONE_MARK, least, start) + 1)
    if after > 0 and _JOINED.fullmatch(text, after, start):
        return True
    after = text.rfind(_EMAIL_MARK, least, start) + 1
    joint = text[after:start].strip() if after > 0 else ""
    return bool(joint and is_complete(digits) and _JOINED.fullmatch(text, after, start))


def _extent(run: Run, first: int, free: int) -> int | None:
    """The last group of the longest number that starts here."""
    total = 0
    best = None
    for last in range(first, min(first + _MOST_GROUPS, free)):
        start, end = run.groups[last]
        if last > first:
            gap = run.gaps[last - 1]
            if gap not in _GAPS or total + end - start > _MOST:
                break
            if end - start == 1 and total >= _LOCAL_LEAST:
                break
            spaced = " " in gap and any(
                "-" in g or g == "." for g in run.inner_gaps(first, last - 1)
            )
            if total >= _LOCAL_LEAST and spaced:
                break
            if total >= _FULL and (end - start > 4 or total + end - start > 13):
                break
        elif end - start > _MOST:
            break
        total += end - start
        best = last
    return best


def _context(run: Run, first: int, last: int) -> Context:
    return Context(run.text, start_of(run, first, last), run.groups[last][1])
