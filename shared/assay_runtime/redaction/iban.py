"""IBANs: a country's length and mod 97 (ISO 13616)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay_runtime.redaction.checksums import mod97
from assay_runtime.redaction.cues import Context
from assay_runtime.redaction.span import IBAN, Span
from assay_runtime.redaction.vocabulary import IBAN_WORDS

# Length by country, SWIFT's registry release 101 and the countries that use the form unregistered.
_LENGTHS = {
    15: "NO", 16: "BE", 18: "DK FI FK FO GL NL SD", 19: "MK SI",
    20: "AT BA EE KZ LT LU XK MN", 21: "CH HR LI LV",
    22: "BG BH CR DE GB GE GI IE ME RS VA", 23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG DZ", 25: "LY PT ST CV GW MZ AO",
    26: "IS TR IR", 27: "BI DJ FR GR IT MC MR SM BF CM CF CG GA GQ MG KM TD",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV BJ CI ML SN TG NE MA",
    29: "BR EG PS QA UA", 30: "JO KW MU YE", 31: "MT SC", 32: "LC", 33: "RU",
}  # fmt: skip
_BY_COUNTRY = {
    country: length for length, countries in _LENGTHS.items() for country in countries.split()
}

_HEAD = re.compile(r"(?<=[0-9])(?<=[A-Za-z]{2}[0-9])(?<![^\W_][A-Za-z]{2}[0-9])[0-9]")
_SEPARATORS = re.compile(r"[ \u00a0\u202f-]")
_GROUP = 4


def find_ibans(text: str) -> Iterator[Span]:
    """IBANs, together or in groups, in capitals or not."""
    for head in _HEAD.finditer(text):
        start = head.end() - 4
        length = _BY_COUNTRY.get(text[start : start + 2].upper())
        end = _end(text, start, length) if length else None
        if end is not None and _reads_as_iban(text, start, end):
            yield Span(start, end, IBAN)


def _end(text: str, start: int, length: int) -> int | None:
    """Behind the last of `length` letters and digits with at most one separator between them."""
    place = start
    for count in range(length):
        if count and place < len(text) and _SEPARATORS.match(text, place):
            place += 1
        if place >= len(text) or not (text[place].isascii() and text[place].isalnum()):
            return None
        place += 1
    return None if place < len(text) and text[place].isalnum() else place


def _reads_as_iban(text: str, start: int, end: int) -> bool:
    written = text[start:end]
    groups = _SEPARATORS.split(written)
    if not mod97("".join(groups).upper()):
        return False
    in_fours = all(len(group) == _GROUP for group in groups[:-1]) and len(groups[-1]) <= _GROUP
    if len(groups) == 1 or in_fours:
        return True
    return written.isupper() or Context(text, start, end).names(IBAN_WORDS)
