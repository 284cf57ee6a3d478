"""CPU time and memory of processes, from /proc (Linux)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds since the process started, all threads; resident megabytes now and at most."""

    cpu_s: float
    rss_mb: float
    peak_rss_mb: float


def usage(pid: int) -> Usage:
    """What the kernel has counted for one process; ProcessLookupError where it is gone."""
    folder = Path(f"/proc/{pid}")
    try:
        stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        status = (folder / "status").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    # The program's name stands in parentheses and may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    sizes = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Vm"))
    return Usage(
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
        rss_mb=_megabytes(sizes.get("VmRSS")),
        peak_rss_mb=_megabytes(sizes.get("VmHWM")),
    )


def usages(pids: Mapping[str, int]) -> dict[str, Usage]:
    """Usage by name; a process that is gone is left out."""
    found = {}
    for name, pid in pids.items():
        try:
            found[name] = usage(pid)
        except ProcessLookupError:
            continue
    return found


def _megabytes(text: str | None) -> float:
    return int(text.split()[0]) / 1024 if text else 0.0
