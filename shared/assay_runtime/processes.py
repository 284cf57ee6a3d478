"""Where a service finds its processes."""

from __future__ import annotations

from pathlib import Path

from assay.contracts import schema_root


def process_folder(setting: str) -> Path:
    """The mounted folder a setting names, or the processes that ship with the contracts."""
    return Path(setting) if setting else schema_root() / "processes"
