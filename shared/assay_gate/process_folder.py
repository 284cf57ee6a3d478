"""A process folder read once: its files, their hash, its YAML and its JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay_gate.bounded_yaml import MAX_DEPTH, YamlError, load_yaml
from assay_gate.hints import hint
from assay_gate.verdict import GateError

MAX_FILES = 500
MAX_BYTES = 8 * 1024 * 1024


class ProcessError(GateError):
    """A process folder is wrong; the message begins with the file and, where known, the key."""

    def __init__(self, file: str, key: str, message: str) -> None:
        super().__init__(": ".join(part for part in (file, key, message) if part))
        self.file = file
        self.key = key
        self.reason = message


@dataclass(frozen=True, slots=True)
class Folder:
    """All files of a process by relative name; nothing is read again after this."""

    path: Path
    files: Mapping[str, bytes]

    @property
    def hash(self) -> str:
        """Hex SHA-256 over each file's name and bytes with their lengths, in order of the names."""
        digest = hashlib.sha256()
        for name in sorted(self.files):
            for part in (name.encode(), self.files[name]):
                digest.update(len(part).to_bytes(8, "big") + part)
        return digest.hexdigest()

    def text(self, name: str, named_by: str = "") -> str:
        """A file's text; ProcessError says which key of config.yaml named it."""
        if name not in self.files:
            message = f"there is no file {name!r} in the folder" + hint(name, self.files)
            raise ProcessError("config.yaml", named_by, message)
        try:
            return self.files[name].decode()
        except UnicodeDecodeError as error:
            raise ProcessError(name, "", f"is no UTF-8 text: {error}") from None

    def json(self, name: str, named_by: str) -> dict[str, Any]:
        """A file's JSON object."""
        try:
            value = json.loads(self.text(name, named_by), object_pairs_hook=_unique)
        except ValueError as error:
            raise ProcessError(name, "", f"is no JSON: {error}") from None
        except RecursionError:
            raise ProcessError(name, "", f"is nested deeper than {MAX_DEPTH}") from None
        if _deeper(value, MAX_DEPTH):
            raise ProcessError(name, "", f"is nested deeper than {MAX_DEPTH}")
        if not isinstance(value, dict):
            raise ProcessError(name, "", "is no JSON object")
        return value

    def yaml(self, name: str) -> dict[str, Any]:
        """A file's YAML mapping, within the limits of `load_yaml`."""
        text = self.text(name)
        try:
            value = load_yaml(text)
        except YamlError as error:
            raise ProcessError(name, "", str(error)) from None
        if not isinstance(value, dict):
            raise ProcessError(name, "", "is no mapping")
        return value


def read_folder(path: Path) -> Folder:
    """The folder's files without hidden ones; links are followed, as mounted volumes use them."""
    if not path.is_dir():
        raise ProcessError(str(path), "", "there is no such folder")
    files: dict[str, bytes] = {}
    size = 0
    for file in sorted(path.rglob("*")):
        relative = file.relative_to(path)
        if any(part.startswith((".", "__pycache__")) for part in relative.parts):
            continue
        if not file.is_file():
            continue
        with file.open("rb") as opened:  # a link may lead to a file that says 0 and never ends
            content = opened.read(MAX_BYTES - size + 1)
        size += len(content)
        if len(files) >= MAX_FILES or size > MAX_BYTES:
            raise ProcessError(
                str(path), "", f"more than {MAX_FILES} files or {MAX_BYTES} bytes: no process"
            )
        files[relative.as_posix()] = content
    return Folder(path, files)


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key {key!r} is given twice")
        members[key] = value
    return members


def _deeper(value: Any, most: int) -> bool:
    """Whether containers are nested deeper than `most`; without recursion."""
    level = [value]
    for _ in range(most):
        level = [
            member
            for each in level
            for member in (each.values() if isinstance(each, dict) else each)
            if isinstance(member, dict | list)
        ]
        if not level:
            return False
    return True
