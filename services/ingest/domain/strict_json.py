"""Reading hostile JSON: bounded, unambiguous, and normalised where dirt is harmless.

Refused: bad UTF-8, duplicate keys, and anything over the limits. Normalised and noted: NaN,
Infinity and numbers beyond a double become null, lone surrogates become U+FFFD, because real
aggregators write both and neither may travel on (SPEC S3.1, X.5). Integers stay exact.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from assay.submission import SubmissionError

MAX_NOTES = 100
_KEY_SHOWN = 64


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """Bounds on one document (SPEC S3.8, X.5).

    Bytes are those of the value as received. Depth counts nested containers, the outermost as
    one. Elements are members and items of all containers together. Digits bound one number's
    length: the largest honest integer, a uint256, has 78.
    """

    max_bytes: int = 4 * 1024 * 1024
    max_depth: int = 64
    max_elements: int = 200_000
    max_digits: int = 1_000


@dataclass(frozen=True, slots=True)
class Note:
    """Something changed or ignored on the way in; `path` is a JSON pointer."""

    path: str
    reason: str


class _Duplicated(dict[str, Any]):
    """An object in which `key` stood more than once."""

    key: str


class _LongNumber:
    """A number with more digits than allowed."""

    def __init__(self, length: int) -> None:
        self.length = length


class _Node(NamedTuple):
    """A container and its place; the chain of parents is its path.

    A tuple because one is made for every container: a frozen dataclass takes twice as long.
    """

    container: dict[str, Any] | list[Any]
    depth: int
    parent: _Node | None = None
    key: str | int = ""

    def pointer(self, *tail: str | int) -> str:
        """JSON pointer of this container, or of something under it."""
        keys = list(reversed(tail))
        node = self
        while node.parent is not None:
            keys.append(node.key)
            node = node.parent
        # The outermost key is the place in the list that holds the document.
        return "".join(f"/{pointer_token(key)}" for key in reversed(keys[:-1]))


def read_json(raw: bytes, limits: JsonLimits) -> tuple[Any, list[Note]]:
    """The document and what was normalised in it; SubmissionError says what is wrong where.

    Codes: too_large, empty, invalid_utf8, invalid_json, too_deep, too_many_elements,
    number_too_long, duplicate_key.
    """
    if len(raw) > limits.max_bytes:
        raise SubmissionError(
            "too_large", "", f"{len(raw):,} bytes; at most {limits.max_bytes:,} are accepted"
        )
    return _normalised(_parsed(_text(raw), limits), limits)


def _text(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SubmissionError(
            "invalid_utf8", "", f"not UTF-8: byte 0x{raw[error.start]:02x} at {error.start}"
        ) from error
    if not text.strip():
        raise SubmissionError("empty", "", "the document is empty; a JSON object was expected")
    return text


def _parsed(text: str, limits: JsonLimits) -> Any:
    def number(kind: type[int] | type[float]) -> Any:
        def read(digits: str) -> Any:
            return kind(digits) if len(digits) <= limits.max_digits else _LongNumber(len(digits))

        return read

    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_int=number(int), parse_float=number(float)
        )
    except json.JSONDecodeError as error:
        raise SubmissionError(
            "invalid_json",
            "",
            f"not JSON: {error.msg} at line {error.lineno} column {error.colno}",
        ) from error
    except RecursionError as error:
        raise _too_deep("", limits) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    marked = _Duplicated(made)
    counts = Counter(key for key, _ in pairs)
    marked.key = counts.most_common(1)[0][0]
    return marked


def _normalised(document: Any, limits: JsonLimits) -> tuple[Any, list[Note]]:
    """Checks every value without recursion and replaces in place what cannot travel on."""
    notes: list[Note] = []
    holder = [document]
    nodes = [_Node(holder, 0)]
    elements = -1
    # Level by level: the list grows while it is read.
    for node in nodes:
        elements += len(node.container)
        if elements > limits.max_elements:
            raise SubmissionError(
                "too_many_elements",
                node.pointer(),
                f"more than {limits.max_elements:,} members and items",
            )
        if isinstance(node.container, dict):
            _clean_keys(node.container, node, notes)
        for key, value in _items(node.container):
            if isinstance(value, str):
                if not value.isascii() and (clean := scrubbed(value)) is not value:
                    _replace(node, key, clean, "lone surrogate replaced with U+FFFD", notes)
            elif isinstance(value, (dict, list)):
                nodes.append(_child(node, key, value, limits))
            elif isinstance(value, float) and not math.isfinite(value):
                _replace(node, key, None, "not a finite number, replaced with null", notes)
            elif isinstance(value, _LongNumber):
                raise SubmissionError(
                    "number_too_long",
                    node.pointer(key),
                    f"a number of {value.length:,} digits; at most {limits.max_digits:,}",
                )
    return holder[0], notes


def _child(
    node: _Node, key: str | int, value: dict[str, Any] | list[Any], limits: JsonLimits
) -> _Node:
    if node.depth >= limits.max_depth:
        raise _too_deep(node.pointer(key), limits)
    if isinstance(value, _Duplicated):
        raise SubmissionError(
            "duplicate_key",
            node.pointer(key, value.key),
            f"the key {json.dumps(value.key[:_KEY_SHOWN])} stands more than once in one object",
        )
    return _Node(value, node.depth + 1, node, key)


def _clean_keys(members: dict[str, Any], node: _Node, notes: list[Note]) -> None:
    if "".join(members).isascii():
        return
    pairs = list(members.items())
    members.clear()
    for key, value in pairs:
        clean = scrubbed(key)
        if clean in members:
            raise SubmissionError(
                "duplicate_key",
                node.pointer(clean),
                "two keys differ only in lone surrogates, which no UTF-8 can carry",
            )
        members[clean] = value
        if clean is not key:
            _note(notes, node.pointer(clean), "lone surrogate in the key replaced with U+FFFD")


def _items(container: dict[str, Any] | list[Any]) -> Iterable[tuple[Any, Any]]:
    return container.items() if isinstance(container, dict) else enumerate(container)


def _replace(node: _Node, key: Any, value: Any, reason: str, notes: list[Note]) -> None:
    container: Any = node.container
    container[key] = value
    _note(notes, node.pointer(key), reason)


def _note(notes: list[Note], path: str, reason: str) -> None:
    if len(notes) < MAX_NOTES:
        notes.append(Note(path, reason))
    elif len(notes) == MAX_NOTES:
        notes.append(Note("", "more of the kind, not listed"))


def scrubbed(text: str) -> str:
    """The same object where it can be written as UTF-8, else with U+FFFD for lone surrogates."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def pointer_token(key: str | int) -> str:
    """One key as a part of a JSON pointer: escaped, printable, of bounded length."""
    text = scrubbed(str(key))[:_KEY_SHOWN].replace("~", "~0").replace("/", "~1")
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _too_deep(pointer: str, limits: JsonLimits) -> SubmissionError:
    return SubmissionError(
        "too_deep", pointer, f"nested deeper than {limits.max_depth} objects and lists"
    )
