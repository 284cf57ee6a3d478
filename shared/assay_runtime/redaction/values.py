"""Redaction of JSON values and of log events."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any

from assay_runtime.redaction.encoded import redact_encoded
from assay_runtime.redaction.finder import find, redact
from assay_runtime.redaction.vocabulary import words

# Shorter whole numbers are no card, no SSN and no telephone number.
_LEAST_NUMBER = 10_000_000
# Written by the runtime itself or checked before they get here.
SAFE_KEYS = words(
    """timestamp level service logger pipeline topic partition offset position end request_id
    event_id trace_id span_id wallet process_id process_version process_hash step attempt
    outcome stage model_digest evm_sha256 prompt_sha256 schema_sha256"""
)


def redact_json(value: Any, *, under: str = "") -> Any:
    """A copy of a JSON value with its texts redacted, also behind `\\u0040` and in base64; `under`
    is the key it stands under.

    Keys count as context for what stands under them, and are redacted themselves where they
    contain personal data. A whole number is judged as the text of its digits, and replaced by the
    text `[CARD]` and its like; other numbers, booleans and null stay. Depth is not limited.
    """
    holder: list[Any] = [None]
    open_: list[tuple[Any, Any, Any, str]] = [(holder, 0, value, under)]
    while open_:
        target, place, source, key = open_.pop()
        if isinstance(source, dict):
            made: dict[Any, Any] = {}
            for name, item in source.items():
                shown = _unused(_key(name), made) if isinstance(name, str) else name
                made[shown] = None
                open_.append((made, shown, item, name if isinstance(name, str) else ""))
            target[place] = made
        elif isinstance(source, list | tuple):
            items: list[Any] = [None] * len(source)
            open_ += [(items, index, item, key) for index, item in enumerate(source)]
            target[place] = items
        elif isinstance(source, str):
            target[place] = redact_encoded(source, under=key)
        else:
            target[place] = _redacted_number(source, key)
    return holder[0]


def redact_event(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor: redacts every value but those of SAFE_KEYS (SPEC S5.5).

    It belongs behind `format_exc_info` and before the renderer. What is neither JSON nor None is
    judged as the text that the renderer would make of it, and stays where that holds nothing.
    """
    for key, value in event.items():
        if key in SAFE_KEYS or key.startswith("_"):
            continue
        if isinstance(value, str):
            event[key] = redact_encoded(value, under="" if key == "event" else key)
        elif isinstance(value, dict | list | tuple | int):
            event[key] = redact_json(value, under=key)
        elif value is not None and not isinstance(value, float):
            written = repr(value)
            shown = redact_encoded(written, under=key)
            event[key] = value if shown == written else shown
    return event


@lru_cache(maxsize=4096)
def _key(name: str) -> str:
    return redact(name)


def _redacted_number(value: Any, key: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or value < _LEAST_NUMBER:
        return value
    written = str(value) if value < 10**20 else ""
    spans = find(written, under=key)
    return f"[{spans[0].type}]" if spans else value


def _unused(key: str, made: dict[Any, Any]) -> str:
    """The key, numbered where another key was redacted to the same text."""
    number = 2
    shown = key
    while shown in made:
        shown = f"{key} {number}"
        number += 1
    return shown
