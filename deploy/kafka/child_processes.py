"""Processes that a server started for itself, signalled without meeting another of the same id."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from deploy.owned_process import start_mark


def children_of(pid: int) -> dict[int, str]:
    """Children with their start marks; PostgreSQL's are in sessions of their own."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        child, parent = int(stat.parent.name), text.rpartition(")")[2].split()[1]
        if parent == str(pid) and (mark := start_mark(child)) is not None:
            found[child] = mark
    return found


def send(processes: Mapping[int, str | None], number: signal.Signals) -> None:
    """The signal to those of the processes, by id and start mark, that still are what they were."""
    for pid, mark in processes.items():
        with suppress(ProcessLookupError):
            if start_mark(pid) == mark:
                os.kill(pid, number)
