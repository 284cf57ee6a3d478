"""The folder a stack keeps its data in: its owner's alone, one stack at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from deploy.owned_process import ServerError

_MODE = 0o700


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the folder, made where it is missing; ServerError where another stack holds it.

    One that is there keeps its mode, which somebody chose; what is put into it is its owner's
    alone whatever that is.
    """
    try:
        if not folder.is_dir():
            private_folder(folder)
        lock = (folder / "stack.lock").open("w")
    except OSError as error:
        raise ServerError(f"{folder} cannot be used: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServerError(f"another stack is running with the data in {folder}") from None
        yield


def private_folder(folder: Path) -> Path:
    """A folder of the stack's own that its owner alone can read, whatever the umask says and
    whatever an earlier version left."""
    folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
    folder.chmod(_MODE)
    return folder


def write_private(file: Path, text: str) -> None:
    """Write a file that its owner alone can read; it is there whole or not at all."""
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    fresh.replace(file)
