"""Wallet records from files: one JSON document, a JSON array, or one document a line (JSONL)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO


class BadRecord(ValueError):
    """A record that cannot be read; the message says why."""


def read_records(file: Path) -> Iterator[tuple[str, Any]]:
    """(place, parsed JSON) per record; `-` is standard input. JSONL is read as it is needed.

    A record that cannot be read is yielded as its BadRecord, so that its neighbours still go out.
    OSError where the file cannot be opened.
    """
    with _opened(file) as source:
        lines = _numbered(enumerate(source, 1))
        number, first = next(lines, (0, b""))
        record = _parsed(first)
        if not first:
            yield str(file), record
            return
        if not isinstance(record, BadRecord | list):
            second = next(lines, None)
            if second is None:
                yield str(file), record
            else:
                yield from _each_line(file, chain([(number, first), second], lines))
            return
        text = b"\n" * (number - 1) + first + source.read()
        document = _parsed(text)
        if isinstance(document, list):
            yield from ((f"{file}[{index}]", item) for index, item in enumerate(document))
        elif isinstance(document, BadRecord) and _is_jsonl(text):
            yield from _each_line(file, _numbered(enumerate(text.split(b"\n"), 1)))
        else:
            yield str(file), document


class RereadRecords:
    """Records of files that are read more than once: those of a pipe are kept in memory."""

    def __init__(self) -> None:
        self._held: dict[Path, list[tuple[str, Any]]] = {}

    def hold(self, files: Iterable[Path]) -> None:
        """Read now what cannot be read twice; what cannot be opened is left."""
        for file in files:
            if str(file) == "-" or not file.is_file():
                with suppress(OSError):
                    self._held[file] = list(read_records(file))

    def of(self, file: Path) -> Iterable[tuple[str, Any]]:
        """As `read_records`."""
        return self._held[file] if file in self._held else read_records(file)


def line_count(file: Path) -> int:
    """How many records a file has if it is JSONL; 0 where that cannot be told beforehand."""
    if not file.is_file():
        return 0
    with file.open("rb") as source:
        return sum(1 for _ in _numbered(enumerate(source)))


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield sys.stdin.buffer
    else:
        with file.open("rb") as source:
            yield source


def _numbered(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in lines if line.strip())


def _each_line(file: Path, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[str, Any]]:
    return ((f"{file}:{number}", _parsed(line)) for number, line in lines)


def _is_jsonl(text: bytes) -> bool:
    """Whether text that is no JSON is a list of records with a bad one among them.

    A broken document that is printed over several lines has its inner objects indented.
    """
    lines = [line for line in text.split(b"\n") if line.strip()]
    return lines[0].startswith(b"{") and any(
        line.startswith(b"{") and isinstance(_parsed(line), dict) for line in lines[1:]
    )


def _parsed(text: bytes) -> Any:
    """The JSON value, or the BadRecord that says why there is none."""
    if not text.strip():
        return BadRecord("there is no record in it")
    try:
        return json.loads(text.decode("utf-8-sig"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        return BadRecord(f"no UTF-8 text: byte 0x{text[error.start]:02x} at {error.start}")
    except BadRecord as error:
        return error
    except ValueError as error:
        return BadRecord(f"no JSON: {error}")
    except RecursionError:
        return BadRecord("nested too deeply")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a key that stands twice is refused, since only one value would be published."""
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise BadRecord(f"the key {twice[:64]!r} stands twice in one object")
    return made
