"""A kill -9 of a fault run leaves nothing behind (issue 6: the machine goes on to the next run)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.owned_process import start_mark
from tests.fault.surroundings import Disk, disk_possible, sweep

REPO = Path(__file__).resolve().parents[2]
# Stands for `assay up`: its line, and an end that it has to come to by itself.
STACK = """
import json, os, pathlib, signal, sys, threading
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
print(json.dumps({"pid": os.getpid()}), flush=True)
ended.wait(60)
pathlib.Path(sys.argv[1]).write_text("in order")
"""
RUNNER = """
import sys, threading, time
from pathlib import Path
from tests.fault.running_stack import RunningStack

stack = RunningStack("embedded", data=Path(sys.argv[1]))
stack._command = [sys.executable, "-c", sys.argv[2], sys.argv[3]]
thread = threading.Thread(target=stack.__enter__)
thread.start()
thread.join()
print(stack.addresses["pid"], flush=True)
time.sleep(60)
"""


def test_the_stack_ends_with_a_killed_runner_and_not_before(tmp_path: Path) -> None:
    """It lives on when the thread that asked for it ends, and is told to end, not killed, when
    the runner is gone: then it can end its services too."""
    said = tmp_path / "said"
    command = [sys.executable, "-c", RUNNER, str(tmp_path / "data"), STACK, str(said)]
    with subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        stack = int(runner.stdout.readline())
        try:
            time.sleep(0.3)
            assert start_mark(stack) is not None
            runner.kill()
            runner.wait()
            deadline = time.monotonic() + 10
            while start_mark(stack) is not None and time.monotonic() < deadline:
                time.sleep(0.02)
            assert start_mark(stack) is None
        finally:
            runner.kill()
            if start_mark(stack) is not None:
                os.kill(stack, signal.SIGKILL)
    assert said.read_text() == "in order"


def test_files_and_disks_of_gone_runs_are_taken_away(tmp_path: Path) -> None:
    """Those of a living run stay, and those of which nobody knows whose they are."""
    owners = {
        "gone": {"pid": os.getpid(), "started": "another start"},
        "living": {"pid": os.getpid(), "started": start_mark(os.getpid())},
        "starting": {},
    }
    for name, owner in owners.items():
        folder = tmp_path / f"assay-run-beside-{name}"
        folder.mkdir()
        (folder / "owner.json").write_text(json.dumps(owner))
    (tmp_path / "assay-run-beside-link").symlink_to(tmp_path / "assay-run-beside-gone")
    sweep(tmp_path)
    left = {path.name.rpartition("-")[2] for path in tmp_path.iterdir()}
    assert left == {"living", "starting", "link"}


def test_a_gone_runs_disk_is_unmounted(tmp_path: Path) -> None:
    """Its memory would be held until the machine starts again."""
    if not disk_possible():
        pytest.skip("mounting a disk needs root")
    folder = tmp_path / "assay-run-beside-gone"
    disk = Disk(folder / "disk")
    assert disk.mount()
    try:
        (folder / "owner.json").write_text(json.dumps({"pid": os.getpid(), "started": "another"}))
        sweep(tmp_path)
        assert not os.path.ismount(disk.folder)
        assert not folder.exists()
    finally:
        disk.unmount()
