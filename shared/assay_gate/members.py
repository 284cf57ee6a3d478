"""Where a member or an item begins: looking ahead in the text without reading it."""

from __future__ import annotations

from assay_gate.tokens import OPENING_QUOTES, skip_space

_LONGEST_KEY = 200
_VALUE_STARTS = frozenset("\"'“‘„`{[-+.0123456789")


def comma_goes_on(text: str, position: int, in_object: bool) -> bool:
    """Whether what follows a comma can only be the next member or item."""
    char = text[position : position + 1]
    if in_object:
        return char == "}" or member_starts(text, position)
    if char in _VALUE_STARTS or char == "]":
        return True
    end = bare_key_end(text, position)
    return end > position and text[end : end + 1] in (",", "]")


def member_starts(text: str, position: int) -> bool:
    """Whether `"key":` or `key:` begins here."""
    opening = text[position : position + 1]
    if opening in OPENING_QUOTES and opening:
        closing = OPENING_QUOTES[opening]
        found = [text.find(c, position + 1, position + 1 + _LONGEST_KEY) for c in closing]
        ends = [end for end in found if end >= 0]
        if not ends:
            return False
        end = min(ends) + 1
    else:
        end = bare_key_end(text, position)
        if end == position:
            return False
    return text.startswith(":", skip_space(text, end))


def bare_key_end(text: str, position: int) -> int:
    """Where the identifier that begins here ends; `position` itself if none does."""
    if not (text[position : position + 1].isalpha() or text[position : position + 1] in ("_", "$")):
        return position
    end = position + 1
    limit = min(len(text), position + _LONGEST_KEY)
    while end < limit and (text[end].isalnum() or text[end] in "_$-"):
        end += 1
    return end
