"""What a part of the stack writes, read for its supervisor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class PartLog:
    """The log file of one part; it may be half written at any moment."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = 0

    def line(self, prefix: str) -> str | None:
        """The first whole line that begins so."""
        lines = self._read(0).split(b"\n")[:-1]
        found = (line for line in lines if line.startswith(prefix.encode()))
        line = next(found, None)
        return None if line is None else line.decode("utf-8", "replace")

    def news(self) -> list[str]:
        """What a person at the terminal has to know of the lines since the last call: lost
        records are said aloud, not only in a log (DESIGN §8)."""
        text = self._read(self._seen)
        whole = text[: text.rfind(b"\n") + 1]
        self._seen += len(whole)
        found = []
        for line in whole.splitlines():
            event = _event(line) if b"retention_overrun" in line else {}
            if event.get("event") == "retention_overrun":
                found.append(
                    f"LOST {event.get('lost_records')} records of {event.get('topic')}: the "
                    "broker dropped them before they were read"
                )
        return found

    def last_words(self) -> str:
        """Why the part ended, in one line."""
        lines = [line for line in self._read(0).splitlines() if line.strip()]
        if not lines:
            return "it wrote nothing"
        event = _event(lines[-1])
        said = event.get("reason") or event.get("exception") or event.get("event")
        if not isinstance(said, str):
            said = lines[-1].decode("utf-8", "replace")
        told = [row.strip(" |+-") for row in said.splitlines()]
        return ([row for row in told if row] or ["it wrote nothing"])[-1][:500]

    def _read(self, start: int) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(start)
                return file.read()
        except FileNotFoundError:
            return b""


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
