"""All detectors over one text, behind a pre-filter that most texts do not pass."""

from __future__ import annotations

import re

from assay_runtime.redaction.cards import find_cards
from assay_runtime.redaction.email import SPELT_AT, find_emails
from assay_runtime.redaction.iban import find_ibans
from assay_runtime.redaction.ip import find_ips
from assay_runtime.redaction.national import (
    find_aadhaar,
    find_ninos,
    find_pans,
    find_social_security,
)
from assay_runtime.redaction.phones import find_phone
from assay_runtime.redaction.runs import Run, runs
from assay_runtime.redaction.shields import mark_found, mark_replacements, shield
from assay_runtime.redaction.span import Span

# One search per text: seven digits that start no Unix time and no decimal fraction, the middle of
# an IPv4 address, of a PAN, of a NINO, or the head of an IBAN. Each starts at a digit, so that
# the search skips everything else.
_DIGITS = re.compile(
    r"""[0-9](?:
        (?<![0-9A-FXa-fx][0-9])(?<![0-9]\.[0-9])
        (?![0-9]*\.[0-9]+(?![0-9.]))
        (?!(?<=1)[4-9][0-9]{8}(?:[0-9]{3}){0,3}(?![0-9]))
        (?:[ \u00a0\u2007\u2009\u202f().\-/\u2010-\u2015]{0,3}[0-9]){6}
      | \.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]
      | (?<=[A-Za-z]{5}[0-9])[0-9]{3}[A-Za-z](?![^\W_])
      | (?:(?<=[A-Za-z]{2}[0-9])(?<![^\W_][A-Za-z]{2}[0-9])|(?<=[A-Za-z]{2}[ \u00a0-][0-9]))
        [0-9][ \u00a0-]?[0-9]{2}[ \u00a0-]?[0-9]{2}(?![0-9])
      | (?<=[A-Za-z]{2}[0-9])(?<![^\W_][A-Za-z]{2}[0-9])[0-9][ \u00a0\u202f-]?[0-9A-Za-z]{4}
    )""",
    re.VERBOSE,
)
_COLONS = re.compile(r":[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]")
_SHORTEST = 6
# A span can uncover another one beside it; bounded, so that time stays linear.
_ROUNDS = 4


def find(text: str, *, under: str = "") -> list[Span]:
    """Personal data in a text, sorted and without overlap; places are code points of `text`.

    `under` is the JSON key that the text stands under: `4155550132` under `phone` is a number to
    call, and under `offset` is none. Time is linear in the length of the text.
    """
    if not may_hold(text):
        return []
    lead = f'"{under}": "' if under else ""
    work = mark_replacements(lead + text)
    found: list[Span] = []
    for _ in range(_ROUNDS):
        more = _round(work)
        if not more:
            break
        found += more
        work = mark_found(work, more)
    size = len(lead)
    return sorted(
        Span(span.start - size, span.end - size, span.type) for span in found if span.start >= size
    )


def redact(text: str, *, under: str = "") -> str:
    """The text with `[EMAIL]`, `[PHONE]`, … in place of what `find` finds."""
    return replaced(text, find(text, under=under))


def replaced(text: str, spans: list[Span]) -> str:
    """The text with these sorted spans replaced by their kinds in brackets."""
    if not spans:
        return text
    parts = []
    done = 0
    for span in spans:
        parts += [text[done : span.start], f"[{span.type}]"]
        done = span.end
    return "".join([*parts, text[done:]])


def may_hold(text: str) -> bool:
    """Whether `find` could find something; False for most texts, in some 30 ns a character."""
    return len(text) >= _SHORTEST and (
        "@" in text
        or _DIGITS.search(text) is not None
        or _COLONS.search(text) is not None
        or ("%" in text and ("%40" in text or "%2B" in text or "%2b" in text))
        or SPELT_AT.search(text) is not None
    )


def _round(text: str) -> list[Span]:
    """What is found at first sight; stronger evidence goes first and hides its text."""
    found: list[Span] = []
    for detectors in ((find_emails,), (find_ibans, find_ips), (find_ninos, find_pans)):
        more = [span for detector in detectors for span in detector(text)]
        found, text = _taken(found, more, text)
    text = shield(text)
    numbers: list[Span] = []
    after = -1
    for run in runs(text):
        more, after = _in_run(run, after)
        numbers += more
    return _taken(found, numbers, text)[0]


def _taken(found: list[Span], more: list[Span], text: str) -> tuple[list[Span], str]:
    """Both lists as one, and the text without the second; of overlapping spans the first stays."""
    kept: list[Span] = []
    for span in sorted(more, key=lambda span: (span.start, -span.end)):
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
    return sorted(found + kept), mark_found(text, kept) if kept else text


def _in_run(run: Run, after: int) -> tuple[list[Span], int]:
    """What a run holds, and where the last telephone number ended; `after` is where before it."""
    taken = [False] * len(run.groups)
    found = find_cards(run, taken)
    for detector in (find_social_security, find_aadhaar):
        for first in range(len(run.groups)):
            span = None if taken[first] else detector(run, first)
            if span is None:
                continue
            last = first
            while run.groups[last][1] < span.end:
                last += 1
            if not any(taken[first : last + 1]):
                taken[first : last + 1] = [True] * (last + 1 - first)
                found.append(span)
    free = _free_until(taken)
    first = 0
    while first < len(taken):
        hit = None if taken[first] else find_phone(run, first, free[first], after)
        if hit is not None:
            span, first = hit
            found.append(span)
            after = span.end
        first += 1
    return found, after


def _free_until(taken: list[bool]) -> list[int]:
    """For each group the next that is taken, or how many there are."""
    free = [len(taken)] * len(taken)
    for place in range(len(taken) - 1, -1, -1):
        if taken[place]:
            free[place] = place
        elif place + 1 < len(taken):
            free[place] = free[place + 1]
    return free
