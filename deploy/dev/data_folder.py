"""The folder a stack keeps its data in: one stack at a time."""

from __future__ import annotations

import contextlib
import fcntl
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
