"""What the README says of the long fault series is what is on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bench import fault_series
from tests.bench.fault_series import kept, markdown
from tests.bench.readme_table import README, marked
from tests.fault.findings import VIOLATIONS
from tests.fault.record import Record

COMMIT = "a1b2c3d" + "0" * 33


def test_the_readme_says_what_is_on_record() -> None:
    """`python -m tests.bench.fault_series --write` puts it there."""
    (said,) = marked("faults").findall(README.read_text(encoding="utf-8"))
    assert said == markdown(kept())


def test_no_run_is_counted_twice() -> None:
    """A seed stands in one series only, and the sums are those of the runs."""
    seeds = [run["seed"] for series in kept() for run in series["each"]]
    assert len(seeds) == len(set(seeds))
    for series in kept():
        assert series["runs"] == len(series["each"])
        for kind in VIOLATIONS:
            assert series[kind] == sum(run.get(kind, 0) for run in series["each"])


def test_what_the_runner_writes_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss shows in the table, in its own row and in the last."""
    monkeypatch.setattr(fault_series, "KEPT", tmp_path)
    record = Record(tmp_path / "build" / "fault.json", COMMIT, {})
    record.add(run(7, lost=2), 1.0)
    record.add(run(8), 1.0)
    assert fault_series.keep(record.document()).name == "a1b2c3d.json"
    head, _, row, total = markdown(kept()).splitlines()
    assert head.startswith("| commit | runs | events | faults | lost |")
    assert row.startswith("| a1b2c3d | 2 | 200 | 2 | 2 | 0 | 0 | 0 | 0 of 0 | 3 s |")
    assert total == row.replace("a1b2c3d", "all")


def test_two_series_of_a_commit_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that ran side by side no seed is lost; what contradicts the record is not taken."""
    monkeypatch.setattr(fault_series, "KEPT", tmp_path)
    for seeds in ((9, 7), (8, 7)):
        series = Record(tmp_path / "build" / "fault.json", COMMIT, {"events": 100})
        for seed in seeds:
            series.add(run(seed), 1.0)
        fault_series.keep(series.document())
    (joined,) = kept()
    assert (joined["seeds"], joined["runs"], joined["events"]) == ([7, 8, 9], 3, 300)
    for options, found in (({"events": 100}, {"lost": 1}), ({"events": 200}, {})):
        other = Record(tmp_path / "build" / "fault.json", COMMIT, options)
        other.add(run(7, **found), 1.0)
        with pytest.raises(ValueError, match=r"other options|another run of seed 7"):
            fault_series.keep(other.document())
    assert kept() == [joined]


def test_a_changed_tree_has_no_name(tmp_path: Path) -> None:
    record = Record(tmp_path / "fault.json", f"{COMMIT}-dirty", {})
    record.add(run(7), 1.0)
    with pytest.raises(ValueError, match="no series of one commit"):
        fault_series.keep(record.document())


def run(seed: int, **found: int) -> dict[str, Any]:
    faults = [{"fault": "SIGTERM of signer", "recovery_s": 2.6}]
    return {"seed": seed, "events": 100, "clean": not found, "faults": faults, **found}
