"""Where a stack started by `assay up` left its addresses, so that other commands find it."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import typer

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
    """`--bootstrap`, else ASSAY_KAFKA__BOOTSTRAP, else the running stack's, else the local port.

    typer.BadParameter where it is no `host:port[,host:port…]`.
    """
    stack = running_stack() or {}
    found = given or os.environ.get("ASSAY_KAFKA__BOOTSTRAP") or stack.get("bootstrap") or _DEFAULT
    for address in str(found).split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise typer.BadParameter(f"{address!r} is no host:port", param_hint="--bootstrap")
    return str(found)
