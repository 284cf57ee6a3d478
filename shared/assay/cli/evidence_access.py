"""Which evidence a command asks, and the token it shows there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

import typer

from assay.cli.stack import running_stack, stack_file

FULL_TEXT = "full_text"
ERASURE = "erasure"
TOKEN_VARIABLE = "ASSAY_EVIDENCE_TOKEN"  # noqa: S105 - the name of one
EvidenceUrl: TypeAlias = Annotated[
    str | None, typer.Option(metavar="URL", help="Evidence service; default: the stack's.")
]


def evidence_address(given: str | None) -> str:
    """`--evidence`, else the running stack's; typer.BadParameter where there is neither, or what
    is given is no http(s) address."""
    address = str(given or (running_stack() or {}).get("evidence") or "")
    if not address:
        raise typer.BadParameter(
            "no stack is running here; give the address of an evidence service",
            param_hint="--evidence",
        )
    if not is_http_address(address):
        raise typer.BadParameter(f"{address}: not an http(s) address", param_hint="--evidence")
    return address


def is_http_address(text: str) -> bool:
    """Whether it names a scheme of HTTP, a host and no impossible port."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def tokens_file(address: str) -> Path:
    """Where a stack of this user leaves the tokens of its evidence at `address`, mode 0600."""
    parts = urlsplit(address)
    name = "".join(c if c.isalnum() else "-" for c in parts.hostname or "")
    return stack_file().parent / f"evidence-{name}-{parts.port or 80}.json"


def local_token(address: str, kind: str) -> str | None:
    """The token of a stack that this user runs at that address; None where there is none."""
    try:
        left = json.loads(tokens_file(address).read_text(encoding="utf-8"))
        os.kill(int(left["pid"]), 0)
        token = left.get(kind)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return token if isinstance(token, str) else None
