"""Comments that are more than a remark: they stand for something left out (rule 5)."""

from __future__ import annotations

from assay_gate.tokens import DOTS

_LEFT_OUT = (
    "omitted", "truncated", "elided", "abridged", "left out", "for brevity", "and so on",
)  # fmt: skip
_LEFT_OUT_FIRST = ("remaining", "rest of", "the rest", "add more", "etc")


def leaves_out(comments: str) -> bool:
    """Whether a comment stands for something that was left out: `// ...`, `/* rest omitted */`."""
    for line in comments.lower().splitlines():
        words = line.strip(" \t/*#()")
        if words.startswith(DOTS + _LEFT_OUT_FIRST) or words.endswith(DOTS):
            return True
        if any(phrase in words for phrase in _LEFT_OUT):
            return True
    return False
