"""Groups of digits with single separators between them, as people write numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SEPARATOR = r"[ \u00a0\u2007\u2009\u202f().\-/\u2010-\u2015]"
# Glued to a letter it is part of an identifier, unless the letters are these. The first digit
# comes first, so that the search skips everything else.
_GLUED = "phone mobile mob tel whatsapp ssn ph aadhaar aadhar card visa %2B"
_LEFT = "|".join(["(?<![^\\W_][0-9])", *(f"(?<={word}[0-9])" for word in _GLUED.split())])
_RUN = re.compile(rf"[0-9](?:{_LEFT})[0-9]*(?:{_SEPARATOR}{{1,3}}[0-9]+)*", re.IGNORECASE)
_GROUP = re.compile(r"[0-9]+")
_ALIKE = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015", "-")
    | dict.fromkeys("\u00a0\u2007\u2009\u202f", " ")
)
_EXTENSION = re.compile(r"x[0-9]{1,6}(?![^\W_])", re.IGNORECASE)

LEAST_DIGITS = 7


@dataclass(frozen=True)
class Run:
    """Groups of digits: where each is, how long, and what separates it from the next.

    In `gaps` dashes are alike and spaces are alike; behind the last group it is empty.
    """

    text: str
    groups: list[tuple[int, int]]
    sizes: list[int]
    gaps: list[str]

    def digits(self, first: int, last: int) -> str:
        """The digits of these groups, inclusive."""
        return "".join([self.text[start:end] for start, end in self.groups[first : last + 1]])

    def lengths(self, first: int, last: int) -> tuple[int, ...]:
        """How many digits each of these groups has."""
        return tuple(self.sizes[first : last + 1])

    def inner_gaps(self, first: int, last: int) -> set[str]:
        """The separators inside these groups."""
        return set(self.gaps[first:last])

    def tied_to_digits(self, first: int, last: int) -> bool:
        """Whether a dash, dot or slash ties more digits or letters to either end."""
        if first and " " not in self.gaps[first - 1]:
            return True
        if last + 1 < len(self.groups):
            return " " not in self.gaps[last] and self.gaps[last] not in (")", "(", "/")
        return not _ends(self.text, self.groups[last][1])

    def tied_to_word(self, first: int) -> bool:
        """Whether letters lead into the number without a space, as in `INV-536`."""
        if first:
            return False
        ahead = self.text[max(0, self.groups[0][0] - 2) : self.groups[0][0]]
        return ahead[-1:].isalpha() or (ahead[-1:] in ("-", "_", ".") and ahead[:1].isalnum())


def runs(text: str) -> Iterator[Run]:
    """Every run of at least seven digits, in order."""
    for match in _RUN.finditer(text):
        if match.end() - match.start() < LEAST_DIGITS:
            continue
        groups = [found.span() for found in _GROUP.finditer(text, match.start(), match.end())]
        sizes = [end - start for start, end in groups]
        if sum(sizes) >= LEAST_DIGITS:
            gaps = [text[end : groups[place][0]] for place, (_, end) in enumerate(groups[:-1], 1)]
            yield Run(text, groups, sizes, [*(gap.translate(_ALIKE) for gap in gaps), ""])


def _ends(text: str, end: int) -> bool:
    behind = text[end : end + 2]
    if not behind:
        return True
    if behind[0].isalnum() or behind[0] == "_":
        return _EXTENSION.match(text, end) is not None
    return not (behind[0] == "-" and behind[1:].isalnum())
