"""The folder of a batch: result files, what has been read, and whose batch it is.

A line counts once it ends in a newline; a torn last line is what a crash leaves, and is cut off
when the folder is opened. Positions are saved after the lines they stand for, never before.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from assay.batch.lines import is_retryable
from assay.errors import AssayError

Kind: TypeAlias = Literal["validated", "failures"]
Line: TypeAlias = dict[str, Any]
_KINDS: tuple[Kind, ...] = ("validated", "failures")


class FolderError(AssayError):
    """The folder cannot hold this batch: another's, in use, or damaged."""


class ResultFolder:
    """An opened folder; close it to let others in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / ".lock").open("ab")
        except OSError as error:
            raise FolderError(f"{path}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise FolderError(f"{path}: another batch run is writing there") from None
        self._open: dict[Path, IO[bytes]] = {}
        self._unwritten: dict[Path, list[bytes]] = {}

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._lock.close()

    def load(self, name: str) -> Line | None:
        """`batch.json` or `positions.json`; None where there is none."""
        try:
            document: Line = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise FolderError(f"{self.path / name}: {error}") from None
        return document

    def save(self, name: str, document: Line) -> None:
        """Replace it as a whole, on disk when this returns."""
        self._replace(self.path / name, json.dumps(document, indent=1).encode() + b"\n")

    def lines(self) -> Iterator[tuple[str, Kind, Line]]:
        """(step, kind, record) of all result lines."""
        for kind in _KINDS:
            for file in sorted(self.path.glob(f"*_{kind}.jsonl")):
                step = file.name.removesuffix(f"_{kind}.jsonl")
                for record in _records(file):
                    yield step, kind, record

    def archived(self) -> Iterator[Line]:
        """Failures that were taken out to be asked again, of each step the oldest first."""
        for file in sorted(self.path.glob("*_failures.jsonl.bak")):
            yield from _records(file)

    def archive_retryable(self) -> int:
        """Move what another answer may mend to `{step}_failures.jsonl.bak`; the rest stays
        (SPEC S4.6). A crash in between leaves a record in both, and it still counts as failed."""
        moved = 0
        for file in sorted(self.path.glob("*_failures.jsonl")):
            kept: list[bytes] = []
            taken: list[bytes] = []
            for record in _records(file):
                (taken if is_retryable(record) else kept).append(encoded(record))
            if taken:
                archive = file.with_name(file.name + ".bak")
                for _ in _records(archive) if archive.exists() else ():
                    pass  # a torn last line is cut off before anything follows it
                with archive.open("ab") as target:
                    _write(target, taken)
                self._replace(file, b"".join(kept))
                moved += len(taken)
        return moved

    def add(self, step: str, kind: Kind, record: Line) -> None:
        """A line for the next commit."""
        path = self.path / f"{step}_{kind}.jsonl"
        self._unwritten.setdefault(path, []).append(encoded(record))

    def commit(self) -> None:
        """All added lines are on disk when this returns."""
        for path, lines in self._unwritten.items():
            if path not in self._open:
                self._open[path] = path.open("ab")
                self._sync_folder()
            _write(self._open[path], lines)
        self._unwritten.clear()

    def _replace(self, path: Path, content: bytes) -> None:
        new = path.with_name(f".{path.name}.new")
        with new.open("wb") as target:
            _write(target, [content])
        new.replace(path)
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def encoded(record: Line) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _write(target: IO[bytes], lines: list[bytes]) -> None:
    target.write(b"".join(lines))
    target.flush()
    os.fsync(target.fileno())


def _records(path: Path) -> Iterator[Line]:
    """The records of a file; a torn last line is cut off."""
    end = 0
    with path.open("rb+") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                file.truncate(end)
                return
            end += len(line)
            try:
                record = json.loads(line)
                str(record["unit_id"])
            except (ValueError, TypeError, KeyError):
                raise FolderError(f"{path}:{number}: no result line; mend or remove it") from None
            yield record
