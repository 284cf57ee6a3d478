"""JSON lines through a pipe in constant memory, with a count on a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import IO, Any

MOST_LINE_BYTES = 8_000_000
_DRAIN_BYTES = 65_536
_PROGRESS_SECONDS = 0.5


def read_lines(source: IO[bytes]) -> Iterator[tuple[str, str | None]]:
    """(text, fault) for each line that is not blank; a faulty line is cut or has replacement
    characters."""
    while line := source.readline(MOST_LINE_BYTES + 1):
        if len(line) > MOST_LINE_BYTES and not line.endswith(b"\n"):
            while rest := source.readline(_DRAIN_BYTES):
                if rest.endswith(b"\n"):
                    break
            shown = line[:1000].decode("utf-8", "replace")
            yield shown, f"the line is longer than {MOST_LINE_BYTES} bytes"
            continue
        try:
            text = line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            yield line.decode("utf-8", "replace").rstrip("\r\n"), f"the line is no UTF-8: {error}"
            continue
        if text.strip():
            yield text, None


def write_line(target: IO[bytes], record: Any) -> None:
    """One JSON object as one line of ASCII."""
    target.write(json.dumps(record).encode() + b"\n")


class Progress:
    """Counts units; shows the counts on standard error while that is a terminal."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0
        self._shows = sys.stderr.isatty()
        self._shown = time.monotonic()

    def count(self, *, passed: bool) -> None:
        self.passed += passed
        self.failed += not passed
        if self._shows and time.monotonic() - self._shown > _PROGRESS_SECONDS:
            self._shown = time.monotonic()
            self._show("\r")

    def finish(self) -> int:
        """Writes the last count; returns the exit code: 0 only if every unit passed."""
        if self._shows:
            self._show("\n")
        return 1 if self.failed else 0

    def _show(self, end: str) -> None:
        sys.stderr.write(f"\x1b[2K{self.passed} passed, {self.failed} failed{end}")
        sys.stderr.flush()
