"""`python -m tests.bench.fault_series [--keep | --write]`: long fault series on record.

A series of a hundred runs takes hours and is put together from several machines. `--keep` adds the
seeds of build/fault.json to those of its commit in fault_runs/; without it the sums of all are
printed, and with `--write` put between the README's `<!-- faults -->` marks.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.readme_table import tell
from tests.fault.findings import VIOLATIONS
from tests.fault.record import document

KEPT = Path(__file__).with_name("fault_runs")
RESULT = Path("build/fault.json")
_TOLD = ("lost", "signed_twice", "order_violations")
_HEAD = (
    *("commit", "runs", "events", "faults", "lost", "signed twice", "out of order"),
    *("other violations", "model calls repeated, of those allowed", "slowest recovery"),
)

Series = Mapping[str, Any]


def kept() -> list[dict[str, Any]]:
    """The documents on record, each of one commit; the oldest first seed first."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in KEPT.glob("*.json")]
    return sorted(found, key=lambda series: min(series["seeds"]))


def keep(series: Series) -> Path:
    """Put a series on record, beside the other seeds of its commit; ValueError where it is not of
    one commit that can be named, under the options of what is on record, or tells of a seed
    otherwise than the record does."""
    commits = series["commits"]
    if len(commits) != 1 or not re.fullmatch("[0-9a-f]{40}", commits[0]):
        raise ValueError(f"no series of one commit: {', '.join(commits)}")
    file = KEPT / f"{commits[0][:7]}.json"
    runs = {run["seed"]: run for run in series["each"]}
    if file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        if before["options"] != series["options"]:
            raise ValueError(f"{file.name} is of other options")
        for run in before["each"]:
            if runs.setdefault(run["seed"], run) != run:
                raise ValueError(f"{file.name} has another run of seed {run['seed']}")
    joined = document([runs[seed] for seed in sorted(runs)], series["options"])
    file.write_text(json.dumps(joined, separators=(",", ":")) + "\n", encoding="utf-8")
    return file


def markdown(found: Sequence[Series]) -> str:
    """A table of a row per series, and one of all."""
    lines = ["| " + " | ".join(_HEAD) + " |", "|---" * len(_HEAD) + "|"]
    lines += [_row(series["commits"][0][:7], [series]) for series in found]
    return "\n".join([*lines, _row("all", found)]) + "\n"


def _row(name: str, found: Sequence[Series]) -> str:
    def total(key: str) -> int:
        return sum(series[key] for series in found)

    others = sum(total(kind) for kind in VIOLATIONS if kind not in _TOLD) + total("failed")
    repeated = f"{total('repeated_model_calls'):,} of {total('repeated_model_calls_allowed'):,}"
    slowest = max(series["slowest_recovery_s"] for series in found)
    cells = [name, *(f"{total(key):,}" for key in ("runs", "events", "faults", *_TOLD))]
    return "| " + " | ".join([*cells, f"{others:,}", repeated, f"{slowest:.0f} s"]) + " |"


def main() -> int:
    if "--keep" in sys.argv[1:]:
        try:
            print(keep(json.loads(RESULT.read_text(encoding="utf-8"))))
        except (OSError, ValueError) as error:
            print(f"nothing kept: {error}", file=sys.stderr)
            return 1
        return 0
    tell("faults", markdown(kept()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
