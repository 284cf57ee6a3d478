"""Where the language-neutral contracts are: topics, schemas, examples, released versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).with_name("_schemas")


def schema_root() -> Path:
    """Folder with topics.toml, events/, examples/, processes/ and released/."""
    return _ROOT


@dataclass(frozen=True, slots=True)
class Example:
    """One example value of an event; `why` is the file's name without its ending."""

    event: str
    valid: bool
    why: str
    value: bytes


def iter_examples(event: str | None = None) -> Iterator[Example]:
    """Valid and invalid examples, of one event or of all, in a stable order."""
    for folder in sorted((_ROOT / "examples").iterdir()):
        if event is not None and folder.name != event:
            continue
        for kind in ("valid", "invalid"):
            for file in sorted((folder / kind).glob("*.json")):
                yield Example(folder.name, kind == "valid", file.stem, file.read_bytes())


def load_schema(event: str) -> dict[str, Any]:
    """The exported JSON Schema (Draft 2020-12) of an event."""
    text = (_ROOT / "events" / f"{event}.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
