r"""Regular expressions in the small dialect that every grammar engine reads alike.

llama.cpp emits `\d` and `\w` as literal text and crashed on `(?…)` groups; a pattern without
`^…$` is refused. What cannot be said in the dialect is left out: the full schema judges it.
"""

from __future__ import annotations

_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \\t\\n\\r"}
_CONTROL = "tnr"
_PUNCTUATION = frozenset(r".^$*+?()[]{}|/-\"'")


def portable(pattern: str) -> str | None:
    r"""The pattern with `\d \w \s` spelt out, or None if the dialect cannot say it."""
    if not _anchored(pattern) or "(?" in pattern:
        return None
    out: list[str] = []
    in_class = False
    position = 0
    while position < len(pattern):
        char = pattern[position]
        position += 1
        if char == "\\":
            escaped = pattern[position : position + 1]
            position += 1
            if escaped in _CLASSES and escaped:
                body = _CLASSES[escaped]
                out.append(body if in_class else f"[{body}]")
            elif escaped and (escaped in _CONTROL or escaped in _PUNCTUATION):
                out.append("\\" + escaped)
            else:
                return None
            continue
        if char == "[" and not in_class:
            in_class = True
        elif char == "]" and in_class:
            in_class = False
        elif not in_class and char in "^$" and position not in (1, len(pattern)):
            return None
        out.append(char)
    return None if in_class else "".join(out)


def _anchored(pattern: str) -> bool:
    escapes = len(pattern[:-1]) - len(pattern[:-1].rstrip("\\"))
    return pattern.startswith("^") and pattern.endswith("$") and escapes % 2 == 0


def bounded(pattern: str) -> bool:
    """Whether no match can be longer than the pattern itself says."""
    in_class = escaped = False
    for position, char in enumerate(pattern):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char in "*+" or (char == "{" and pattern[position:].partition("}")[0].endswith(",")):
            return False
    return True
