"""What the text around a bracket says about it."""

from __future__ import annotations

from assay_gate.members import member_starts
from assay_gate.tokens import Unreadable, skip_space

_LONGEST_NAME = 64


def without_quote_marks(text: str) -> str:
    """The text without Markdown's `>`, if each of its lines begins with one."""
    if not text.lstrip().startswith(">"):
        return text
    lines = [line.strip() for line in text.strip().split("\n")]
    if not all(line.startswith(">") for line in lines):
        return text
    return "\n".join(line[1:] for line in lines)


def past_template(text: str, start: int, fault: Unreadable) -> int:
    """The end of `{"score": <number>, …}` in a sentence; raises the fault if it has none."""
    depth = 0
    quoted = False
    for position in range(start, len(text)):
        char = text[position]
        if char == '"':
            quoted = not quoted
        elif not quoted and char in "{[":
            depth += 1
        elif not quoted and char in "}]":
            depth -= 1
            if not depth:
                return position + 1
    raise fault


def check_surroundings(text: str, start: int, end: int) -> None:
    """Refuses a value that is visibly a piece of a larger one that was not read."""
    after = skip_space(text, end)
    comma = text.startswith(",", after)
    follows = skip_space(text, after + 1) if comma else after
    if text[follows : follows + 1] in ('"', "'") and member_starts(text, follows):
        raise Unreadable("not_json", "fields follow after the closing bracket", after)
    before = text[max(0, start - _LONGEST_NAME) : start].rstrip()
    named = before.endswith(":") and before[:-1].rstrip()[-1:] in ('"', "'")
    if named and text[after : after + 1] in ("}", "]"):
        raise Unreadable("not_json", "the opening bracket of the answer is missing", start)


def is_escaped(text: str, start: int) -> bool:
    r"""Whether `\"` is the first thing inside the brackets that open here."""
    position = skip_space(text, start + 1)
    for _ in range(4):
        if text[position : position + 1] in ("{", "["):
            position = skip_space(text, position + 1)
        elif text.startswith(("\\n", "\\t", "\\r"), position):
            position = skip_space(text, position + 2)
        else:
            break
    return text.startswith('\\"', position)
