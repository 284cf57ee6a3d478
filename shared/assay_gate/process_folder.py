"""A process folder read once: its files, their hash, its YAML and its JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

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
        if not isinstance(value, dict):
            raise ProcessError(name, "", "is no JSON object")
        return value

    def yaml(self, name: str) -> dict[str, Any]:
        """A file's YAML mapping; a key given twice is a mistake, not a choice."""
        text = self.text(name)
        try:
            value = yaml.load(text, _UniqueKeys)  # noqa: S506 - derived from SafeLoader
        except yaml.YAMLError as error:
            raise ProcessError(name, "", " ".join(str(error).split())) from None
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
        size += file.stat().st_size
        if len(files) >= MAX_FILES or size > MAX_BYTES:
            raise ProcessError(
                str(path), "", f"more than {MAX_FILES} files or {MAX_BYTES} bytes: no process"
            )
        files[relative.as_posix()] = file.read_bytes()
    return Folder(path, files)


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key {key!r} is given twice")
        members[key] = value
    return members


class _UniqueKeys(yaml.SafeLoader):
    """SafeLoader that refuses a mapping with the same key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int | float | bool | None) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key if isinstance(key, str | int | float | bool | None) else str(key))
        return super().construct_mapping(node, deep)
