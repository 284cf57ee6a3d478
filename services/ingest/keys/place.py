"""Which store `assay keys` works on, found as the other commands find a running stack."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from assay.cli.stack import running_stack
from assay_runtime.settings import SettingsError, load
from assay_runtime.stores import sqlite_path
from services.ingest.keys.store import keys_file
from services.ingest.settings import IngestSettings

SETTING = "ASSAY_INGEST__STORE"


class PlaceError(Exception):
    """No store is named, or none that can be meant."""


@dataclass(frozen=True, slots=True)
class Place:
    """An ingest store. `shown` names where its keys are, without a password; `hint` says what may
    be amiss, empty where nothing is; `file` is where SQLite has the keys."""

    url: str
    shown: str
    hint: str = ""
    file: Path | None = None

    @property
    def is_made(self) -> bool:
        """Whether the store may be there; of PostgreSQL only asking tells."""
        return self.file is None or self.file.exists()


def find_place(store: str | None, data: Path | None) -> Place:
    """`--store`, `--data` (that of `assay up --data`), else ASSAY_INGEST__STORE, else the running
    stack's; PlaceError where there is none of them."""
    if store is not None and data is not None:
        raise PlaceError("--store and --data name two stores; one of them must go")
    if store is not None:
        return _place(store, "--store")
    if data is not None:
        return _place(_in_folder(data), "--data")
    if url := _from_environment():
        return _place(url, SETTING)
    stack = running_stack() or {}
    if "data" in stack:
        return _place(_in_folder(Path(stack["data"])), "the running stack")
    raise PlaceError(
        f"no stack is running; name the store with --data DIR, --store URL or {SETTING}"
    )


def _in_folder(folder: Path) -> str:
    return f"sqlite:///{folder.resolve() / 'requests.sqlite'}"


def _from_environment() -> str | None:
    """The setting as ingest itself reads it."""
    given = {n: v for n in (SETTING, f"{SETTING}_FILE") if (v := os.environ.get(n))}
    try:
        return load(IngestSettings, given).ingest.store if given else None
    except SettingsError as error:
        raise PlaceError(str(error)) from error


def _place(url: str, source: str) -> Place:
    try:
        path = sqlite_path(url, source)
    except SettingsError as error:
        raise PlaceError(str(error)) from error
    if path is None:
        parts = urlsplit(url)
        return Place(url, f"PostgreSQL {parts.hostname or 'localhost'}{parts.path}")
    # Opening would make it, and a key in a folder nobody looks into is a riddle.
    if not path.parent.is_dir():
        raise PlaceError(f"{source}: there is no folder {path.parent}")
    hint = "" if path.exists() else f"no ingest has worked on {path} yet"
    keys = keys_file(path)
    return Place(url, str(keys), hint, keys)
