"""build/fault.json: every run of a series with the sums over them, written whole after each run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fault.findings import VIOLATIONS

_DIRTY = "-dirty"
_REPO = Path(__file__).resolve().parents[2]
# What a run consists of: a word in a README changes none of it.
_RUN = ("shared", "services", "deploy", "schemas", "tests/fault", "requirements.lock")


def commit(repo: Path = _REPO) -> str:
    """The last that changed what is run, with "-dirty" where that is not as committed; "unknown"
    where there is no git to ask."""
    last = _git(repo, "log", "-1", "--format=%H", "--", *_RUN)
    changes = _git(repo, "status", "--porcelain", "--", *_RUN)
    if not last or changes is None:
        return "unknown"
    return last + (_DIRTY if changes else "")


def repeatable(commit: str) -> bool:
    """Whether a commit's name says what ran: two changed trees of one name may differ."""
    return commit != "unknown" and not commit.endswith(_DIRTY)


class Record:
    """The runs of one commit under the same options, by seed."""

    def __init__(self, file: Path, commit: str, options: Mapping[str, Any]) -> None:
        self._file = file
        self._commit = commit
        # As they are after they were written and read.
        self._options = json.loads(json.dumps(dict(options)))
        self._runs: dict[int, dict[str, Any]] = {}

    @property
    def runs(self) -> Sequence[Mapping[str, Any]]:
        return list(self._runs.values())

    @property
    def clean(self) -> bool:
        return all(run["clean"] for run in self._runs.values())

    def resume(self) -> set[int]:
        """Take over what the file has of this commit and these options; the seeds of that."""
        if not repeatable(self._commit):
            return set()
        try:
            each = json.loads(self._file.read_text(encoding="utf-8"))["each"]
            ours = (self._commit, self._options)
            self._runs = {
                run["seed"]: run for run in each if (run.get("commit"), run.get("options")) == ours
            }
        except (OSError, ValueError, KeyError, TypeError):
            self._runs = {}
        return set(self._runs)

    def add(self, run: Mapping[str, Any], took_s: float) -> None:
        """One run more, with the seconds it took from start to end; the file is then complete. It
        may name a `commit` of its own."""
        self._runs[run["seed"]] = {
            "commit": self._commit,
            "options": self._options,
            "took_s": round(took_s, 1),
            **run,
        }
        self._file.parent.mkdir(exist_ok=True)
        fresh = self._file.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(self.document(), indent=2) + "\n", encoding="utf-8")
        fresh.replace(self._file)

    def left_s(self, runs: int) -> float:
        """Seconds that so many further runs will take, by those there are."""
        took = [float(run["took_s"]) for run in self._runs.values()]
        return runs * sum(took) / len(took) if took else 0.0

    def document(self) -> dict[str, Any]:
        return document(self.runs, self._options)


def document(runs: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> dict[str, Any]:
    """The runs with the sums over them."""
    return {
        "commits": sorted({run["commit"] for run in runs}),
        "options": options,
        "runs": len(runs),
        "events": sum(run["events"] for run in runs),
        "clean": all(run["clean"] for run in runs),
        "failed": sum("error" in run for run in runs),
        "faults": sum(len(run["faults"]) for run in runs),
        "seeds": [run["seed"] for run in runs],
        "took_s": round(sum(run["took_s"] for run in runs), 1),
        "repeated_model_calls": sum(run.get("repeated_model_calls", 0) for run in runs),
        "repeated_model_calls_allowed": sum(
            run.get("counts", {}).get("repeated_model_calls_allowed", 0) for run in runs
        ),
        "commits_back": sum(run.get("counts", {}).get("commits_back", 0) for run in runs),
        "slowest_recovery_s": max(
            (fault["recovery_s"] or 0 for run in runs for fault in run["faults"]), default=0
        ),
        **{kind: sum(run.get(kind, 0) for run in runs) for kind in VIOLATIONS},
        "each": runs,
    }


def _git(repo: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(repo), *words], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
