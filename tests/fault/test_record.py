"""A series of runs is recorded after each, and goes on where it ended."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fault.fault_run import RunPlan
from tests.fault.record import Record, commit, repeatable
from tests.fault.run_faults import parsed, planned

COMMIT = "0" * 40
OPTIONS = {"events": 20, "possible": ["disk", "wire"]}


def ran(seed: int, **changes: Any) -> dict[str, Any]:
    faults = [{"fault": "2.0 s: SIGSTOP of scorer", "recovery_s": 0.5 * seed}]
    return {"seed": seed, "events": 20, "clean": True, "faults": faults, "lost": 0} | changes


def written(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def test_a_series_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Issue 6: what is recorded of the same commit and options is kept in the sums."""
    file = tmp_path / "build" / "fault.json"
    first = Record(file, COMMIT, OPTIONS)
    assert first.resume() == set()
    first.add(ran(1), 10.0)
    first.add(ran(2, lost=1, clean=False), 20.0)
    assert first.left_s(4) == 60.0
    then = Record(file, COMMIT, OPTIONS)
    assert then.resume() == {1, 2}
    then.add(ran(3), 30.0)
    whole = written(file)
    assert (whole["runs"], whole["events"], whole["lost"], whole["clean"]) == (3, 60, 1, False)
    assert (whole["seeds"], whole["took_s"]) == ([1, 2, 3], 60.0)
    assert (whole["commits"], whole["options"]) == ([COMMIT], OPTIONS)
    assert [run["took_s"] for run in whole["each"]] == [10.0, 20.0, 30.0]


@pytest.mark.parametrize(
    ("other", "options"),
    [
        ("1" * 40, OPTIONS),
        (COMMIT, {**OPTIONS, "events": 21}),
        (COMMIT, {**OPTIONS, "possible": ["disk"]}),
        (COMMIT + "-dirty", OPTIONS),
    ],
)
def test_what_ran_otherwise_is_not_taken_over(
    tmp_path: Path, other: str, options: dict[str, Any]
) -> None:
    """Another commit, other options, another machine's faults: other runs. And a changed tree's
    name does not say what ran."""
    file = tmp_path / "fault.json"
    Record(file, other, options).add(ran(1), 1.0)
    asked = Record(file, other if other.endswith("-dirty") else COMMIT, OPTIONS)
    assert asked.resume() == set()
    asked.add(ran(2), 1.0)
    assert written(file)["seeds"] == [2]


def test_a_tree_that_changed_meanwhile(tmp_path: Path) -> None:
    """A run is of the commit that it ran on, not of the one that the series began with."""
    file = tmp_path / "fault.json"
    record = Record(file, COMMIT, OPTIONS)
    record.add(ran(1), 1.0)
    record.add(ran(2, commit="1" * 40), 1.0)
    assert written(file)["commits"] == [COMMIT, "1" * 40]
    assert Record(file, COMMIT, OPTIONS).resume() == {1}
    assert Record(file, "1" * 40, OPTIONS).resume() == {2}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"each": [{}]}', '{"each": 3}'])
def test_a_file_of_something_else(tmp_path: Path, text: str) -> None:
    file = tmp_path / "fault.json"
    file.write_text(text, encoding="utf-8")
    record = Record(file, COMMIT, OPTIONS)
    assert record.resume() == set()
    record.add(ran(1), 1.0)
    assert written(file)["runs"] == 1


def test_a_run_that_broke_down_is_not_clean(tmp_path: Path) -> None:
    """It is in the record with its reason, and the sums still stand."""
    record = Record(tmp_path / "fault.json", COMMIT, OPTIONS)
    record.add(ran(1), 1.0)
    plan = RunPlan(events=20, wallets=2, seed=2, broker="kafka")
    record.add(plan.broken_down(RuntimeError("no stack")), 2.0)
    whole = record.document()
    assert (whole["clean"], whole["failed"], whole["events"]) == (False, 1, 40)
    assert "no stack" in whole["each"][1]["error"]


def test_the_commit_of_a_changed_tree(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    assert commit(tmp_path / "nowhere") == "unknown"
    git("init")
    assert commit(tmp_path) == "unknown"
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "old").write_text("x", encoding="utf-8")
    git("add", ".")
    git("commit", "-m", "old")
    name = commit(tmp_path)
    assert len(name) == 40
    assert repeatable(name)
    (tmp_path / "README").write_text("x", encoding="utf-8")
    assert commit(tmp_path) == name
    git("add", ".")
    git("commit", "-m", "a word that no run reads")
    assert commit(tmp_path) == name
    (tmp_path / "services" / "new").write_text("x", encoding="utf-8")
    assert commit(tmp_path) == f"{name}-dirty"
    assert not repeatable(commit(tmp_path))
    assert not repeatable("unknown")


def test_a_plan_follows_from_options_seed_and_what_is_possible() -> None:
    """Without a wire to cut none is cut, and the plan of a seed is the same every time."""
    options = parsed(["--faults=60"])
    can = ["disk", "postgres", "wire"]
    assert planned(options, 5, can) == planned(options, 5, can)
    wires = ("cut off", "cut off and replaced", "replies lost")
    assert {fault.fault for fault in planned(options, 5, can).schedule} >= set(wires)
    without = planned(options, 5, ["disk", "postgres"])
    assert not without.wire
    assert not {fault.fault for fault in without.schedule} & set(wires)
    assert [planned(options, seed, can).stores for seed in range(4)] == [
        "files", "disk", "postgres", "mixed",
    ]  # fmt: skip
    assert planned(options, 1, []).stores == "files"
