"""Telephone numbers: international by calling code, national by shape, others where named.

A number after `+` needs a calling code and a length in use there. Ranges that are reserved for
fiction (07700 900xxx, 555-01xx) count: whoever writes them means a telephone.
"""

from __future__ import annotations

import re

from assay_runtime.redaction.cues import Context
from assay_runtime.redaction.runs import Run
from assay_runtime.redaction.shields import mark_of
from assay_runtime.redaction.span import EMAIL, PHONE, Span
from assay_runtime.redaction.vocabulary import PHONE_LINES, PHONE_NOUNS, PHONE_VERBS

# Shortest and longest national number in use, and the calling codes that have them. From the
# metadata of libphonenumber 9.0.43 (Apache-2.0): fixed, mobile, personal and VoIP numbers.
_LENGTHS = {
    (6, 6): "298 299 672 681 687",
    (6, 7): "597 676 677 678 683 688 690",
    (6, 9): "252 27 359 376 40 421 508 686",
    (6, 10): "358 53 63 685 880 95 98",
    (6, 12): "39 352 82",
    (6, 13): "43 49",
    (7, 8): "230 238 239 241 246 248 267 269 291 297 372 501 507 592 599 670 673 674 675 679 "
    "680 691 692 960 961 975",
    (7, 9): "220 231 245 254 265 354 423 46 48 595 967",
    (7, 10): "243 353",
    (7, 12): "381 62 86 882",
    (8, 8): "216 222 223 226 227 228 232 235 236 253 257 266 268 350 356 357 370 371 373 374 "
    "382 386 389 45 47 502 503 504 505 506 509 591 598 65 689 852 853 965 968 973 974 993",
    (8, 9): "213 224 250 258 264 32 355 36 377 385 387 51 593 66 855 962 963 970 971",
    (8, 10): "20 378 57 60 64 850 856 964 976 977",
    (8, 12): "383 883 886 972",
    (9, 9): "211 212 218 221 233 237 240 242 244 249 251 255 256 260 261 262 33 34 351 375 380 "
    "41 420 56 590 594 596 61 93 94 966 992 994 995 996 998",
    (9, 10): "263 44 81 84 881 92",
    (9, 11): "31",
    (9, 12): "870",
    (10, 10): "1 225 229 234 30 52 58 7 90 91",
    (10, 11): "54 55",
}
_BY_CODE = {code: bounds for bounds, codes in _LENGTHS.items() for code in codes.split()}

_LOCAL_LEAST, _MOST = 7, 15
_FULL = 10
_MOST_GROUPS = 7
# Deep inside a run no word is beside a number.
_NEAR_EDGE = 3
_GAPS = frozenset(["", " ", "-", ".", "/", ")", "(", "  ", ") ", " (", ")-", "-(", " - ", ") (",
                   ")(", ").", " -", "- "])  # fmt: skip
_DATE = re.compile(r"(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])")
_NORTH_AMERICAN = re.compile(r"1?[2-9](?!11)[0-9]{2}[2-9](?!11)[0-9]{6}")
_MOBILE_IN = re.compile(r"(?:91|0)?[6-9][0-9]{9}")
_MOBILE_GB = re.compile(r"07[1-9][0-9]{8}")
_TRUNK = re.compile(r"0[1-9][0-9]{7,10}")
_UNIX_TIME = re.compile(r"1[4-9][0-9]{8}(?:[0-9]{3})?")  # seconds or milliseconds, 2014 to 2033
_MOBILE_CN = re.compile(r"1[3-9][0-9]{9}")
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
    return Span(_start(run, first, last), run.groups[last][1], PHONE), last


def _international(run: Run, first: int, free: int) -> int | None:
    """After a plus sign, or after 00 and with separators."""
    plus = _plus(run, first)
    digits = run.digits(first, min(first + _MOST_GROUPS, free) - 1)
    if not plus:
        if not digits.startswith("00"):
            return None
        digits = digits[2:]
    code = next((digits[:size] for size in (1, 2, 3) if digits[:size] in _BY_CODE), None)
    if code is None:
        return None
    least, most = _BY_CODE[code]
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
    if run.tied_to_word(first) or _plus(run, first):
        return None
    best = None
    for last in range(first, min(first + _MOST_GROUPS, free)):
        if last > first and run.gaps[last - 1] not in _GAPS:
            break
        if _is_shape(run, first, last) and not run.tied_to_digits(first, last):
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


def _is_shape(run: Run, first: int, last: int) -> bool:
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


def _named(run: Run, first: int, free: int, after: int) -> int | None:
    """What stands beside a word such as `phone`, or closes a list of telephone numbers."""
    last = _extent(run, first, free)
    if last is None or run.tied_to_digits(first, last):
        return None
    inside = first > _NEAR_EDGE and last + 1 < len(run.groups)
    digits = run.digits(first, last)
    listed = _is_listed(run.text, after, _start(run, first, last), digits)
    if inside and not listed:
        return None
    is_time = first == last and (_DATE.fullmatch(digits) or _UNIX_TIME.fullmatch(digits))
    if len(digits) < _LOCAL_LEAST or is_time:
        return None
    context = _context(run, first, last)
    if context.is_amount:
        return None
    likely = _is_likely(digits, run.lengths(first, last))
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
    return bool(joint and _is_complete(digits) and _JOINED.fullmatch(text, after, start))


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


def _is_likely(digits: str, lengths: tuple[int, ...]) -> bool:
    """Whether the digits are those of a complete national number somewhere, or are grouped."""
    if any(shape.fullmatch(digits) for shape in (_NORTH_AMERICAN, _MOBILE_IN, _MOBILE_CN)) or (
        digits[0] == "0" and digits[1] != "0" and 9 <= len(digits) <= 12
    ):
        return True
    return len(lengths) > 1 and len(digits) <= 13 and all(size <= 5 for size in lengths)


def _is_complete(digits: str) -> bool:
    return any(
        shape.fullmatch(digits) for shape in (_NORTH_AMERICAN, _MOBILE_IN, _MOBILE_CN, _TRUNK)
    )


def _context(run: Run, first: int, last: int) -> Context:
    return Context(run.text, _start(run, first, last), run.groups[last][1])


def _plus(run: Run, first: int) -> str:
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


def _start(run: Run, first: int, last: int) -> int:
    """Where the number starts with its plus sign and a bracket that it also closes."""
    start = run.groups[first][0] - len(_plus(run, first))
    opened = run.text[start - 1 : start] == "(" and start > 0
    inside = run.text[start : run.groups[last][1]]
    return start - 1 if opened and inside.count(")") > inside.count("(") else start
