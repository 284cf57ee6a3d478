"""Wallet records from files: one JSON document, a JSON array, or one document a line (JSONL)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


class BadRecord(ValueError):
    """A record that cannot be read; the message says why."""


def read_records(file: Path) -> Iterator[tuple[str, Any]]:
    """(place, parsed JSON) per record; `-` is standard input. Lines are read as they are needed.

    A record that cannot be read is yielded as its BadRecord, so that its neighbours still go out.
    OSError where the file cannot be opened.
    """
    with _opened(file) as source:
        first = _first_line(source)
        record = _parsed(first)
        if not isinstance(record, BadRecord) and not isinstance(record, list):
            yield from _lines(str(file), [first, *_next_lines(source)], source)
            return
        rest = source.read()
        document = _parsed(first + rest)
        if isinstance(document, list):
            yield from ((f"{file}[{index}]", item) for index, item in enumerate(document))
        elif isinstance(document, BadRecord) and _is_jsonl(first, rest):
            yield from _lines(str(file), [first, *rest.splitlines(keepends=True)], [])
        else:
            yield str(file), document


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield sys.stdin.buffer
    else:
        with file.open("rb") as source:
            yield source
