"""Store settings: `sqlite:///PATH` (relative; a fourth slash makes it absolute) or
`postgresql://…`."""

from __future__ import annotations

from pathlib import Path

from assay_runtime.settings import SettingsError


def sqlite_path(url: str, setting: str) -> Path | None:
    """The file of a SQLite URL, None for a PostgreSQL URL; SettingsError names the setting."""
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return Path(url.removeprefix("sqlite:///"))
    if url.startswith(("postgresql://", "postgres://")):
        return None
    raise SettingsError(f"{setting}: neither sqlite:///PATH nor postgresql://…")
