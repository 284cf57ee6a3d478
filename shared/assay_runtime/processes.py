"""Where a service finds its processes."""

from __future__ import annotations

from pathlib import Path

from assay.contracts import schema_root
from assay_gate.process import ProcessError, load_registry
from assay_gate.process_registry import ProcessRegistry
from assay_runtime.settings import SettingsError


def read_registry(setting: str, variable: str) -> ProcessRegistry:
    """Every process of the mounted folder that a setting names, or of those that ship with the
    contracts; SettingsError names the variable, and folder, file and key of a mistake."""
    folder = Path(setting) if setting else schema_root() / "processes"
    if not folder.is_dir():
        raise SettingsError(f"{variable}: there is no folder {str(folder)!r}")
    try:
        return load_registry(folder)
    except (ProcessError, OSError) as error:
        raise SettingsError(f"{variable}: {error}") from error
