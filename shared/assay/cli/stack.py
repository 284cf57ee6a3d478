"""Where a stack started by `assay up` left its addresses, so that other commands find it."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

_DEFAULT = "127.0.0.1:9092"


def stack_file() -> Path:
    """One file per user; it names the stack started last that still runs."""
    return Path(tempfile.gettempdir()) / f"assay-{os.getuid()}" / "stack.json"


def running_stack() -> dict[str, Any] | None:
    """The addresses of the running stack, or None."""
    try:
        stack: dict[str, Any] = json.loads(stack_file().read_text(encoding="utf-8"))
        os.kill(int(stack["pid"]), 0)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return stack


def default_bootstrap(given: str | None) -> str:
    """`--bootstrap`, else ASSAY_KAFKA__BOOTSTRAP, else the running stack's, else the local port."""
    if given:
        return given
    if configured := os.environ.get("ASSAY_KAFKA__BOOTSTRAP"):
        return configured
    stack = running_stack()
    return str(stack["bootstrap"]) if stack else _DEFAULT
