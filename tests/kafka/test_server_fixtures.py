"""What the fixtures promise: one line for what is missing, nothing left of killed runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.owned_process import OwnedProcess, start_mark

REPO = Path(__file__).resolve().parents[2]
CASE = "tests/kafka/test_postgres_server.py::test_databases_are_utf8"
# A machine without PostgreSQL, as far as the run inside can see.
BARE = """
import sys, pathlib, pytest
from deploy.kafka import postgres_server
postgres_server._DEBIAN = pathlib.Path("/nowhere")
sys.exit(pytest.main(["-rs", "-p", "no:cacheprovider", sys.argv[1]]))
"""


@pytest.mark.parametrize(
    ("setting", "code", "line"),
    [
        ({}, 0, r"SKIPPED \[1\].*PostgreSQL is missing: run `apt-get install postgresql`"),
        ({"REQUIRE_SERVERS": "1"}, 1, r"PostgreSQL is missing: run `apt-get install"),
        ({"CI": "true"}, 1, r"PostgreSQL is missing: run `apt-get install postgresql`"),
    ],
)
def test_missing_server_skips_or_fails(setting: dict[str, str], code: int, line: str) -> None:
    """Skipped by default with how to get it; a failure where servers are required."""
    env = {k: v for k, v in os.environ.items() if k not in ("CI", "REQUIRE_SERVERS")}
    run = subprocess.run(
        [sys.executable, "-c", BARE, CASE],
        cwd=REPO, env={**env, **setting, "PATH": "/nowhere"}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == code, run.stdout
    assert re.search(line, run.stdout), run.stdout


def test_leftovers_of_killed_runs_are_swept(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Servers and files of a run that is gone go; those of a living run stay."""
    conftest = next(p for p in request.config.pluginmanager.get_plugins() if hasattr(p, "sweep"))
    folders = {name: tmp_path / name for name in ("gone", "living", "nameless", "starting")}
    for folder in folders.values():
        folder.mkdir()
    left = OwnedProcess(folders["gone"] / "broker.pid", folders["gone"] / "broker.log")
    left.launch([sys.executable, "-c", "import time; time.sleep(600)"])
    pid = left.pid
    assert pid
    gone = {"pid": os.getpid(), "started": "another start"}
    here = {"pid": os.getpid(), "started": start_mark(os.getpid())}
    (folders["gone"] / "owner.json").write_text(json.dumps(gone))
    (folders["living"] / "owner.json").write_text(json.dumps(here))
    os.utime(folders["nameless"], (time.time() - 3600,) * 2)
    conftest.sweep(tmp_path)
    assert {name for name, folder in folders.items() if folder.exists()} == {"living", "starting"}
    assert left.pid is None
    assert start_mark(pid) is None
