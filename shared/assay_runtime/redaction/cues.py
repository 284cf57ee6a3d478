"""Words beside a number that say what it is: `phone`, `SSN`, but also `order`, `block`, `wei`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from assay_runtime.redaction.shields import MARKS
from assay_runtime.redaction.vocabulary import RECORD_WORDS

_REACH = 56
_MOST_WORDS = 6
_LEAD_IN = " \t\n:#=\"'\\([+-_./"
_CLAUSE_END = re.compile(r"[\d,;!?|]|\.\s")
_NEGATIVE_REACH = 3

_WORD = re.compile(r"[^\W\d_]+")
_CAMEL = re.compile(r"(?<=[a-z]{2})(?=[A-Z])")
_MARK = re.compile(f"[{MARKS}]")
# A JSON key, a URL parameter or a logfmt key: what stands before it belongs to another value.
_KEY = re.compile(
    r"""(?:\\*["']([^"'\n]{1,64}?)\\*["']\s*:|(?<![^\W_])([\w.-]{1,48})=)\s*\\*["']?[+(]*$"""
)
_AFTER = re.compile(
    r"\s{0,2}[(\[\-–—,]?\s?(?:is\s)?(?:(?:my|his|her|their|our|the|a)\s)?"
    r"([^\W\d_]{1,24}(?:\s[^\W\d_]{1,24})?)"
    r"(?![^\W_])(?!\.?\s{0,2}(?:no\.?|number)?\s?[:=#+(\d])"
)
_UNIT = re.compile(
    r"\s?(?:%(?![0-9A-Fa-f]{2})|°|(?:wei|gwei|eth|btc|sats?|usd[ct]?|inr|eur|gbp|tokens?|units?|points?|bps|bytes"
    r"|[kmg]i?b|[mnuµ]?s|secs?|seconds|gas|sqft|sqm|km|rows|events|records|blocks)(?![^\W_]))",
    re.IGNORECASE,
)
_MONEY = re.compile(r"(?:[$€£₹¥]|(?<![^\W_])(?:usd|eur|gbp|inr|rs))\.?\s?$", re.IGNORECASE)


@dataclass(frozen=True)
class Context:
    """What stands around `text[start:end]`, up to the line's end or the next known span."""

    text: str
    start: int
    end: int

    @cached_property
    def before(self) -> str:
        """Up to 56 characters before: of the line, or the key alone where there is one."""
        window = self.text[max(0, self.start - _REACH) : self.start]
        marks = list(_MARK.finditer(window))
        if marks:
            window = window[marks[-1].end() :]
        head, newline, tail = window.rpartition("\n")
        if newline and (tail.strip() or not head.rstrip().endswith((":", "="))):
            window = tail
        key = _KEY.search(window)
        return (key[1] or key[2]) + ":" if key else window

    @cached_property
    def words(self) -> list[str]:
        """The nearest six words before, lower case, nearest first; camelCase counts as two."""
        words = [part for word in _WORD.findall(self.before) for part in _CAMEL.split(word)]
        return [word.lower() for word in words[: -_MOST_WORDS - 1 : -1]]

    @cached_property
    def after(self) -> frozenset[str]:
        """Two words at most that follow and belong to the number, lower case."""
        window = _MARK.split(self.text[self.end : self.end + _REACH], maxsplit=1)[0]
        match = _AFTER.match(window)
        return frozenset(match[1].lower().split()) if match else frozenset()

    @cached_property
    def is_amount(self) -> bool:
        """Whether a currency stands before or a unit behind."""
        return (
            _UNIT.match(self.text, self.end) is not None
            or _MONEY.search(self.text[max(0, self.start - 6) : self.start]) is not None
        )

    @cached_property
    def beside(self) -> list[str]:
        """Those of the nearest three words that no comma and no other number separates."""
        clause = _CLAUSE_END.split(self.before.rstrip(_LEAD_IN))[-1]
        words = [part for word in _WORD.findall(clause) for part in _CAMEL.split(word)]
        return [word.lower() for word in words[: -_NEGATIVE_REACH - 1 : -1]]

    def names(self, words: frozenset[str], against: frozenset[str] = RECORD_WORDS) -> bool:
        """Whether the nearest word that says anything is one of `words`, before or behind."""
        for word in self.words:
            if word in words:
                return True
            if word in against:
                return False
        return not self.after.isdisjoint(words)

    def denies(self, against: frozenset[str] = RECORD_WORDS) -> bool:
        """Whether it is an amount, or one of the three nearest words says something else."""
        return self.is_amount or any(word in against for word in self.beside)
