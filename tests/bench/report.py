"""build/bench.json, one section per benchmark, and what every figure has to be read with."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULT = Path("build/bench.json")
_REPO = Path(__file__).resolve().parents[2]
# What a figure depends on: a word in a README, or a fault run on record, changes none.
_MEASURED = (
    *("shared", "services", "deploy", "schemas", "requirements.lock", "tests/fault"),
    *("tests/bench", ":!tests/bench/fault_runs"),
)


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


def measured_tree(repo: Path = _REPO) -> dict[str, Any]:
    """The short hash of the last commit that changed what is measured, "unknown" where there is
    no git to ask; `dirty` where that is not as committed."""
    last = _git(repo, "log", "-1", "--format=%h", "--", *_MEASURED)
    changes = _git(repo, "status", "--porcelain", "--", *_MEASURED)
    return {"commit": last or "unknown", "dirty": bool(last and changes)}


def commits(sections: Iterable[Mapping[str, Any]]) -> str:
    """Where the sections were measured, in words."""
    names = sorted(
        {
            section.get("commit", "unknown") + (" with changes" if section.get("dirty") else "")
            for section in sections
        }
    )
    return f"commit{'s' if len(names) > 1 else ''} {', '.join(names)}"


def in_one_line(error: Exception) -> str:
    """Kind and words of an error."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _git(repo: Path, *words: str) -> str:
    try:
        command = ["git", "-C", str(repo), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def write_section(name: str, section: dict[str, Any], result: Path = RESULT) -> None:
    """Put one benchmark's figures into the file and leave the others' as they are."""
    result.parent.mkdir(parents=True, exist_ok=True)
    try:
        document = json.loads(result.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        document = {}
    document[name] = section
    result.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
