"""Stand-ins, of the same length, for stretches that no detector may read.

Two kinds: a *shield* hides what must survive (wallets, hashes, ids, times, amounts); a *found*
mark stands for a span that is known already, or for the `[EMAIL]` that an earlier redaction put
there. Both redaction of a text and of its redaction see the same marks, so the second changes
nothing.
"""

from __future__ import annotations

import re

from assay_runtime.redaction.span import TYPES, Span

SHIELD = "\ue000"
_MARKS = {kind: chr(ord(SHIELD) + place) for place, kind in enumerate(TYPES, 1)}
MARKS = "".join(_MARKS.values())

_REPLACEMENT = re.compile(r"\[(" + "|".join(TYPES) + r")\]")

# Alternatives are ordered: the first that fits at a place hides it.
_SURVIVES = re.compile(
    r"""
      0[xX][0-9A-Fa-f]+                                              # address, hash, quantity
    | (?<![^\W_])(?:
        [0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}         # UUID
      | [0-9A-Fa-f]{32,}                                             # hash without 0x
      | (?:19|20)[0-9]{2}(?P<s>[-/.])(?:0[1-9]|1[0-2])(?P=s)(?:0[1-9]|[12][0-9]|3[01])
        (?:[T ][0-9]{2}[:.]?[0-9]{2}(?:[:.]?[0-9]{2}(?:[.,][0-9]{1,9})?)?
           (?:Z|\ ?[+-][0-9]{2}:?[0-9]{2})?)?                        # ISO date and time
      | (?:0?[1-9]|[12][0-9]|3[01])(?P<t>[-/.])(?:0?[1-9]|[12][0-9]|3[01])(?P=t)(?:19|20)[0-9]{2}
      | (?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])
        T[0-9]{4}(?:[0-9]{2}(?:\.[0-9]{1,9})?)?Z?                    # compact date and time
      | [0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?![0-9A-Fa-f]?:)   # time of day
      | [0-9]{1,3}(?:,[0-9]{2,3})+(?:\.[0-9]+)?                      # 1,204 and 12,34,567.89
    )(?![^\W_])
    | (?<![^\W_])(?<![)][ ])(?<![.)\-/])[0-9]+\.[0-9]+(?![^\W_])(?!\.[0-9])
      (?![ ]?[-/(][ ]?[0-9])                                         # decimal
    """,
    re.VERBOSE,
)


def shield(text: str) -> str:
    """The text with what survives hidden; every other character keeps its place."""
    return _SURVIVES.sub(_hidden, text)


def _hidden(match: re.Match[str]) -> str:
    return SHIELD * (match.end() - match.start())


def mark_replacements(text: str) -> str:
    """The text with `[EMAIL]` and its like as found marks."""
    if "[" not in text:
        return text
    return _REPLACEMENT.sub(lambda match: _MARKS[match[1]] * len(match[0]), text)


def mark_found(text: str, spans: list[Span]) -> str:
    """The text with these spans as found marks; they are sorted and do not overlap."""
    parts = []
    done = 0
    for span in spans:
        parts += [text[done : span.start], _MARKS[span.type] * (span.end - span.start)]
        done = span.end
    return "".join([*parts, text[done:]])


def mark_of(kind: str) -> str:
    """The character that stands for a found span of this kind."""
    return _MARKS[kind]
