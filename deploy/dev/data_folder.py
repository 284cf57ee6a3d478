"""The folder a stack keeps its data in: one stack at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from deploy.owned_process import ServerError


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the folder, made where it is missing; ServerError where another stack holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "stack.lock").open("w")
    except OSError as error:
        raise ServerError(f"{folder} cannot be used: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServerError(f"another stack is running with the data in {folder}") from None
        yield


def write_private(file: Path, text: str) -> None:
    """Write a file that its owner alone can read; it is there whole or not at all."""
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    fresh.replace(file)
