"""Store settings: `sqlite:///PATH` (relative; a fourth slash makes it absolute) or
`postgresql://…`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from assay_runtime.settings import SettingsError


def sqlite_path(url: str, setting: str) -> Path | None:
    """The file of a SQLite URL, None for a PostgreSQL URL; SettingsError names the setting."""
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return Path(url.removeprefix("sqlite:///"))
    if url.startswith(("postgresql://", "postgres://")):
        return None
    raise SettingsError(f"{setting}: neither sqlite:///PATH nor postgresql://…")


@runtime_checkable
class Watched(Protocol):
    """A store whose database can change behind the service's back."""

    async def watch(self) -> None:
        """Runs for as long as the service does; Stop where only a restart helps."""
        ...


def watches(store: object) -> list[Callable[[], Awaitable[None]]]:
    """What a service runs in the background for its store: nothing for a file."""
    return [store.watch] if isinstance(store, Watched) else []
