"""Thinking blocks in front of an answer: `<think>…</think>`, `[THINK]…[/THINK]`.

What a closed one holds is no answer (rule 3); one that is never closed has cut the answer off.
"""

from __future__ import annotations

from assay_gate.members import bare_key_end
from assay_gate.tokens import Unreadable

_THINKING = frozenset(
    ("think", "thinking", "thought", "thoughts", "reasoning", "reason", "reflection",
     "scratchpad", "analysis")
)  # fmt: skip
_LONGEST_TAG = 64


def may_think(text: str) -> bool:
    """Whether the name of a thinking tag occurs at all."""
    lowered = text.lower()
    return any(name in lowered for name in _THINKING)


def past_thinking(text: str, start: int) -> int | None:
    """The position after the thinking block that opens here; None if none does."""
    closer = ">" if text[start] == "<" else "]"
    name_end = bare_key_end(text, start + 1)
    name = text[start + 1 : name_end].lower()
    if name not in _THINKING or (closer == "]" and name != "think"):
        return None
    tag_end = text.find(closer, name_end, name_end + _LONGEST_TAG)
    if tag_end < 0:
        return None
    if text[tag_end - 1] == "/":
        return tag_end + 1
    opener = text[start] + "/"
    close = text.find(opener, tag_end)
    while close >= 0:
        end = close + 2 + len(name)
        if text[close + 2 : end].lower() == name and text.startswith(closer, end):
            return end + 1
        close = text.find(opener, close + 1)
    raise Unreadable("cut_off", "the text ends inside its thinking block", len(text))
