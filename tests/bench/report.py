"""build/bench.json, one section per benchmark, and what every figure has to be read with."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULT = Path("build/bench.json")


def machine() -> dict[str, Any]:
    """Where the figures come from; the load tells how much of the machine was others'."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load_average_before": [round(load, 2) for load in os.getloadavg()],
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def write_section(name: str, section: dict[str, Any], result: Path = RESULT) -> None:
    """Put one benchmark's figures into the file and leave the others' as they are."""
    result.parent.mkdir(parents=True, exist_ok=True)
    try:
        document = json.loads(result.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        document = {}
    document[name] = section
    result.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
