"""Reading config.yaml key by key; each mistake is a ProcessError that names its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_gate.process_folder import ProcessError

CONFIG = "config.yaml"


def section(
    parent: Mapping[str, Any], key: str, default: dict[str, Any] | None = None, where: str = ""
) -> Mapping[str, Any]:
    """The mapping under `key`; missing or empty gives `default`, without one it is a mistake."""
    value = parent.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, Mapping):
        problem = "missing" if value is None else "must be a mapping"
        raise ProcessError(CONFIG, f"{where}{key}", problem)
    return value


def text(parent: Mapping[str, Any], key: str, where: str) -> str | None:
    """Non-empty text under `key`, or None where it is missing or null."""
    value = parent.get(key)
    if value is None or (isinstance(value, str) and value):
        return value
    raise ProcessError(CONFIG, f"{where}{key}", f"must be text, in quotes, not {value!r}")


def whole(value: Any, key: str) -> int | None:
    """A whole number above 0, or None where there is none."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise ProcessError(CONFIG, key, f"must be a whole number above 0, not {value!r}")
