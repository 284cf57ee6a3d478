"""National numbers: United States SSN, India's Aadhaar and PAN, the United Kingdom's NINO."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay_runtime.redaction.checksums import verhoeff
from assay_runtime.redaction.cues import Context
from assay_runtime.redaction.runs import Run
from assay_runtime.redaction.span import IN_AADHAAR, IN_PAN, SSN, UK_NINO, Span
from assay_runtime.redaction.vocabulary import (
    AADHAAR_WORDS,
    NINO_WORDS,
    PAN_WORDS,
    PHONE_NOUNS,
    RECORD_WORDS,
    SSN_WORDS,
)

# An Aadhaar number is an id: `ID proof`.
_NO_PROOF = RECORD_WORDS - {"id", "ids"}

# The fourth letter says who holds it: P a person, C a company, …
_PAN = re.compile(
    r"(?<=[0-9]{4})(?<=[A-Za-z]{5}[0-9]{4})(?<![^\W_][A-Za-z]{5}[0-9]{4})[A-Za-z](?![^\W_])"
)
_PAN_LENGTH = 10
_PAN_HOLDERS = frozenset("ABCEFGHJKLPT")

_NINO = re.compile(
    r"(?<![^\W_])(?!BG|GB|KN|NK|NT|TN|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]"
    r"(?P<s>[ \u00a0-]?)[0-9]{2}(?P<t>[ \u00a0-]?)[0-9]{2}(?P=t)[0-9]{2}"
    r"(?:[ \u00a0-]?(?P<suffix>[A-D]))?(?![^\W_])(?!-[^\W_])",
    re.IGNORECASE,
)


def find_social_security(run: Run, first: int) -> Span | None:
    """An SSN: an area that was issued, no empty part; without dashes only where it is named."""
    for last in (first, first + 2):
        if last >= len(run.groups) or run.lengths(first, last) not in ((9,), (3, 2, 4)):
            continue
        digits = run.digits(first, last)
        start, end = run.groups[first][0], run.groups[last][1]
        gaps = run.inner_gaps(first, last)
        if not _issued(digits) or len(gaps) > 1 or run.tied_to_digits(first, last):
            continue
        context = Context(run.text, start, end)
        if gaps <= {"-", " ", "."} and context.names(SSN_WORDS):
            return Span(start, end, SSN)
        if gaps == {"-"} and not run.tied_to_word(first) and not context.denies():
            return Span(start, end, SSN)
    return None


def find_aadhaar(run: Run, first: int) -> Span | None:
    """An Aadhaar number: Verhoeff; without groups of four only where it is named."""
    for last in (first, first + 2):
        if last >= len(run.groups) or run.lengths(first, last) not in ((12,), (4, 4, 4)):
            continue
        digits = run.digits(first, last)
        start, end = run.groups[first][0], run.groups[last][1]
        gaps = run.inner_gaps(first, last)
        if digits[0] in "01" or not verhoeff(digits) or len(gaps) > 1:
            continue
        context = Context(run.text, start, end)
        if run.tied_to_digits(first, last) or run.text[start - 1 : start] == "+":
            continue
        if gaps <= {"-", " ", "."} and context.names(AADHAAR_WORDS):
            return Span(start, end, IN_AADHAAR)
        free = not run.tied_to_word(first) and not context.denies(_NO_PROOF)
        if gaps and gaps <= {"-", " "} and free and not context.names(PHONE_NOUNS):
            return Span(start, end, IN_AADHAAR)
    return None


def find_pans(text: str) -> Iterator[Span]:
    """PANs: capital letters and a known kind of holder, or any spelling where it is named."""
    for match in _PAN.finditer(text):
        start, end = match.end() - _PAN_LENGTH, match.end()
        number = text[start:end]
        if (number.isupper() and number[3] in _PAN_HOLDERS) or Context(text, start, end).names(
            PAN_WORDS
        ):
            yield Span(start, end, IN_PAN)


def find_ninos(text: str) -> Iterator[Span]:
    """National Insurance numbers: a prefix in use; without suffix or capitals where named."""
    for match in _NINO.finditer(text):
        written = match[0]
        if (match["suffix"] and written.isupper()) or Context(text, *match.span()).names(
            NINO_WORDS
        ):
            yield Span(*match.span(), UK_NINO)


def _issued(digits: str) -> bool:
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"
