"""Untrusted text inside a prompt: bounded, and unable to close or imitate what encloses it (X.5).

A model reads structure, not escapes, so whatever could pass for structure is rewritten: angle
brackets (fences, tags and chat-template tokens are made of them), code fences, lines that begin
like a heading, list entry or rule, and this system's own control phrases. The recorded input
keeps the text as it came; only the prompt shows this form.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

MAX_LIST = 64
MAX_STRING_BYTES = 256
_MAX_JSON_DEPTH = 4
_JOINERS = "\u200c\u200d"
# Printable ASCII and line feeds: every character stands for itself, as in most texts.
_PLAIN = re.compile(r"[\x20-\x7e\n]*")
_BRACKETS = str.maketrans({"<": "‹", ">": "›"})
_FENCE = re.compile(r"`{3,}|~{3,}|-{3,}|={3,}|#{2,}|\*{3,}|_{3,}")
_INSTRUCTION_TAG = re.compile(
    r"\[\s{0,4}/?\s{0,4}(inst|sys|system|assistant|user)\s{0,4}\]", re.IGNORECASE
)
_MARKUP = re.compile(r"^[-#*+=~_|‹›…]{1,16}\s+")
_CONTROL_PHRASES = re.compile(
    r"previous\W{1,8}attempt\W{1,8}failed\W{1,8}validation|critical\W{1,8}requirements\W{0,8}:",
    re.IGNORECASE,
)


def neutral(text: object, most_bytes: int) -> str:
    """Untrusted text for a prompt, at most `most_bytes` of UTF-8 plus a mark where it was cut.

    Tokens are never more than bytes, so the bound holds for every tokenizer.
    """
    if not isinstance(text, str):
        return ""
    lines = _harmless(text[:most_bytes].replace("\r\n", "\n")).split("\n")
    return _cut("\n".join(map(_line, lines)), most_bytes, len(text) > most_bytes, "\n[… cut here]")


def neutral_line(text: object, most_bytes: int) -> str:
    """The same on a single line."""
    if not isinstance(text, str):
        return ""
    line = " ".join(_harmless(text[:most_bytes]).split())
    return _cut(line, most_bytes, len(text) > most_bytes, "…")


def neutral_json(value: Any, depth: int = 0) -> str:
    """A value as JSON on one line, its strings and keys neutral, its lists bounded.

    ValueError for NaN, infinity and integers too long to print.
    """
    return json.dumps(_neutral_value(value, depth), ensure_ascii=False, allow_nan=False)


def _neutral_value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return neutral_line(value, MAX_STRING_BYTES)
    if isinstance(value, list | dict) and depth >= _MAX_JSON_DEPTH:
        return "…"
    if isinstance(value, list):
        return [_neutral_value(item, depth + 1) for item in value[:MAX_LIST]]
    if isinstance(value, dict):
        return {
            neutral_line(str(key), MAX_STRING_BYTES): _neutral_value(item, depth + 1)
            for key, item in list(value.items())[:MAX_LIST]
        }
    return value


def _harmless(text: str) -> str:
    if not _PLAIN.fullmatch(text):
        text = "".join(_visible(char) for char in unicodedata.normalize("NFKC", text))
    text = _FENCE.sub("…", text.translate(_BRACKETS))
    return _CONTROL_PHRASES.sub("[…]", _INSTRUCTION_TAG.sub("[…]", text))


def _cut(text: str, most_bytes: int, shortened: bool, mark: str) -> str:
    data = text.encode()
    if len(data) <= most_bytes and not shortened:
        return text
    return data[:most_bytes].decode(errors="ignore") + mark


def _visible(char: str) -> str:
    if char == "\n":
        return char
    category = unicodedata.category(char)
    if category == "Cf":
        return char if char in _JOINERS else ""
    if category in ("Zl", "Zp") or char in "\v\f\x85\r":
        return "\n"
    if category == "Cc":
        return " "
    return "\ufffd" if category in ("Cs", "Co", "Cn") else char


def _line(line: str) -> str:
    """A line that does not begin with a word is quoted, and its list or heading mark is gone."""
    start = line.lstrip()
    if not start or start[0].isalnum() or start[0] in "(\"'“‘":
        return line
    return f"| {_MARKUP.sub('', start)}"
