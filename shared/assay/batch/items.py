"""Units of a batch: one JSON object a line.

`{"unit_id": …, <input fields>}`, or `{"unit_id": …, "input": {…}}`. `unit_id` is a text or an
integer; a line without one gets an id made from its content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

MOST_LINE_BYTES = 8_388_608
_MOST_ID = 256
_INJECTED = ("unit_id", "_metadata")


class BadItem(ValueError):
    """A line that is no unit; the message says why."""


@dataclass(frozen=True, slots=True)
class Item:
    """A unit: its id as the line spells it, and the process's input."""

    unit_id: str | int
    input: dict[str, Any]

    @property
    def unit(self) -> str:
        """The id as text: 7 and "7" are the same unit."""
        return str(self.unit_id)


@dataclass(slots=True)
class Index:
    """Where each unit's line begins, in bytes; units in the order of the file.

    `skipped` lists lines that are no unit of their own as (line number, reason); `unusable`
    counts those among them whose content goes nowhere.
    """

    places: dict[str, int] = field(default_factory=dict)
    skipped: list[tuple[int, str]] = field(default_factory=list)
    unusable: int = 0
    duplicates: int = 0


def parse_item(line: bytes) -> Item:
    """The unit that a line holds, or BadItem."""
    if len(line) > MOST_LINE_BYTES:
        raise BadItem(f"longer than {MOST_LINE_BYTES:,} bytes")
    try:
        document = json.loads(
            line.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_no_number
        )
        content = canonical(document)
    except UnicodeError as error:
        raise BadItem(f"no UTF-8 text: {str(error)[:200]}") from None
    except RecursionError:
        raise BadItem("nested too deeply") from None
    except BadItem:
        raise
    except ValueError as error:
        raise BadItem(f"no JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadItem("no JSON object")
    unit_id = document.get("unit_id")
    if unit_id is None:
        unit_id = "unit-" + hashlib.sha256(content).hexdigest()[:24]
    if isinstance(unit_id, bool) or not isinstance(unit_id, str | int):
        raise BadItem("unit_id is neither a text nor an integer")
    if not 0 < len(str(unit_id)) <= _MOST_ID:
        raise BadItem(f"unit_id has not 1 to {_MOST_ID} characters")
    given = {name: value for name, value in document.items() if name not in _INJECTED}
    if given.keys() == {"input"} and isinstance(given["input"], dict):
        given = given["input"]
    return Item(unit_id, given)


def index_items(lines: Iterable[tuple[int, bytes]], most: int | None = None) -> Index:
    """The units among numbered-by-offset lines (byte offset, line), the first `most` of them."""
    index = Index()
    seen: dict[str, tuple[int, bytes]] = {}
    for number, (offset, line) in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = parse_item(line)
        except BadItem as bad:
            index.skipped.append((number, str(bad)))
            index.unusable += 1
            continue
        digest = content_hash(item.input)
        if item.unit in seen:
            first, same = seen[item.unit]
            content = "with the same" if same == digest else "with other"
            shown = f"unit {item.unit!r} stands already on line {first}, {content} content"
            index.skipped.append((number, shown))
            index.duplicates += 1
            index.unusable += same != digest
            continue
        if most is not None and len(seen) == most:
            break
        seen[item.unit] = number, digest
        index.places[item.unit] = offset
    return index


def numbered_lines(source: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """(byte offset, line) of every line."""
    offset = 0
    for line in source:
        yield offset, line
        offset += len(line)


def canonical(value: Any) -> bytes:
    """One spelling of a JSON value; UnicodeError for a lone surrogate, which no event carries."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode()


def content_hash(value: Any) -> bytes:
    """SHA-256 of the canonical spelling."""
    return hashlib.sha256(canonical(value)).digest()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise BadItem(f"the key {twice[:64]!r} stands twice in one object")
    return made


def _no_number(text: str) -> Any:
    raise BadItem(f"{text} is no JSON number")
