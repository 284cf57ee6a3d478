"""The bench's own arithmetic: percentiles, usage of a process, sections of the result file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.pipeline_run import BenchPlan, run
from tests.bench.process_usage import usage, usages
from tests.bench.report import commits, measured_tree, write_section
from tests.bench.scoring_load import Load


def test_percentiles_are_of_the_measured_values() -> None:
    """Nearest rank, whatever the order the values came in."""
    load = Load([float(value) for value in range(100, 0, -1)], seconds=4.0)
    assert (load.percentile(0.5), load.percentile(0.99), load.percentile(1.0)) == (51, 100, 100)
    assert load.per_second == 25


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_cpu_time_of_another_process_is_seen() -> None:
    """A child that burns half a second of CPU shows about that, and one that is gone nothing."""
    code = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        burnt = usage(child.pid)
        child.communicate(b"\n")
    assert 0.4 <= burnt.cpu_s <= 1.5
    assert 0 < burnt.rss_mb <= burnt.peak_rss_mb
    assert usages({"me": os.getpid(), "gone": child.pid}).keys() == {"me"}


def test_sections_of_the_result_file_stay_apart(tmp_path: Path) -> None:
    """One benchmark's figures do not remove another's."""
    result = tmp_path / "bench.json"
    write_section("pipeline", {"a": 1}, result)
    write_section("chain", {"b": 2}, result)
    write_section("pipeline", {"a": 3}, result)
    assert json.loads(result.read_text()) == {"pipeline": {"a": 3}, "chain": {"b": 2}}


def test_commits_in_words() -> None:
    """Several where sections were measured at several."""
    clean = {"commit": "a1b2c3d", "dirty": False}
    dirty = {"commit": "e4f5a6b", "dirty": True}
    assert commits([clean, clean]) == "commit a1b2c3d"
    assert commits([dirty, clean, {}]) == "commits a1b2c3d, e4f5a6b with changes, unknown"


def test_a_tree_is_named_by_what_is_measured(tmp_path: Path) -> None:
    """Another README is the same tree; another service is not; without git it has no name."""
    assert measured_tree(tmp_path / "none") == {"commit": "unknown", "dirty": False}

    def git(*words: str) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@y"]
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (tmp_path / "services").mkdir()
    for name in ("services/a.py", "README.md"):
        (tmp_path / name).write_text("1", "utf-8")
        git("add", "-A")
        git("commit", "-q", "-m", name)
    first = git("rev-parse", "--short", "HEAD~1")
    (tmp_path / "README.md").write_text("2", "utf-8")
    assert measured_tree(tmp_path) == {"commit": first, "dirty": False}
    (tmp_path / "services" / "b.py").write_text("2", "utf-8")
    assert measured_tree(tmp_path) == {"commit": first, "dirty": True}


@pytest.mark.slow
def test_a_small_measurement_from_end_to_end() -> None:
    """Issue 3: every request is timed, and every process of the stack has its share of the CPU."""
    plan = BenchPlan(events=60, warm_up=20, wallets=30, outstanding=30, rate=20, rate_events=20)
    found = run("embedded", plan, lambda text: None)
    assert found["scores_per_s"] > 0
    assert (
        0 < found["at_rate_ms"]["p50"] <= found["at_rate_ms"]["p99"] <= found["at_rate_ms"]["max"]
    )
    services = {"ingest", "features", "scorer", "validator", "signer", "evidence"}
    assert services | {"stack", "simulator", "load"} == found["processes"].keys()
    assert sum(item["cpu_share"] for item in found["processes"].values()) == pytest.approx(
        1, abs=0.01
    )
