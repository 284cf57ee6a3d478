"""Where a stack started by `assay up` left its addresses, so that other commands find it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

_SETTING = "ASSAY_KAFKA__BOOTSTRAP"
_DEFAULT = "127.0.0.1:9092"

Bootstrap: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help=f"Broker; default: {_SETTING}, else the running stack's, else {_DEFAULT}.",
    ),
]


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
    """`--bootstrap`, else ASSAY_KAFKA__BOOTSTRAP, else the running stack's, else the local port,
    which is said.

    typer.BadParameter where it is no `host:port[,host:port…]`.
    """
    found = given or os.environ.get(_SETTING) or (running_stack() or {}).get("bootstrap")
    if not found:
        found = _DEFAULT
        print(f"assay: no stack runs here (`assay up`), so {_DEFAULT} is asked", file=sys.stderr)
    for address in str(found).split(","):
        host, _, port = address.strip().rpartition(":")
        number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0
        if not host or not 0 < number < 65_536:
            raise typer.BadParameter(f"{address!r} is no host:port", param_hint="--bootstrap")
    return str(found)
