"""The dev stack's signing key: made once, kept with the stack's data."""

from __future__ import annotations

from pathlib import Path

from services.signer.adapters.key_file import generate_key_file


def ensure_dev_key(path: Path) -> None:
    """Make a key file, readable by its owner alone, unless one is there."""
    if not path.exists():
        generate_key_file(path)
