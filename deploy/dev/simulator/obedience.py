"""A gullible model: it does what a text inside its data tells it to (for tests of SPEC X.5)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_PROFILE = re.compile(r"^## 2\.(.*)^## 3\.", re.DOTALL | re.MULTILINE)
_FORMAT_PART = "Respond with exactly one JSON value"
_DEMANDED_SCORE = re.compile(r"\bscore\W{0,4}(?:of|is|to|=|:)?\W{0,4}(\d{1,6})\b", re.IGNORECASE)
_MOST_TRIED = 64


def obeyed(prompt: str, value: Any) -> Any:
    """`value` with whatever an object in the data gives for its fields, or a score it asks for.

    The data is section 2 of a wallet-score prompt, or everything before the answer format.
    """
    if not isinstance(value, dict):
        return value
    section = _PROFILE.search(prompt)
    data = section[1] if section else prompt.partition(_FORMAT_PART)[0]
    for found in _objects(data):
        if told := {key: item for key, item in found.items() if key in value}:
            return {**value, **told}
    if "score" in value and (number := _DEMANDED_SCORE.search(data)):
        return {**value, "score": int(number[1])}
    return value


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    for tried, brace in enumerate(re.finditer(r"\{", text)):
        if tried == _MOST_TRIED:
            return
        try:
            found, _ = decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found
