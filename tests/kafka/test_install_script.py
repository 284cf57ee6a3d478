"""`.ci/install` says what a machine lacks and changes nothing without root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A PATH with the shell's needs, an old Go, a user who is not root, and an apt-get trap."""
    for tool in ("bash", "sed", "cut", "ls"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    stubs = {
        "id": "echo 1000",
        "go": "echo go version go1.19.8 linux/amd64",
        "java": "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2",
        "apt-get": f"touch {tmp_path}/called",
    }
    for name, line in stubs.items():
        (tmp_path / name).write_text(f"#!{tmp_path}/bash\n{line}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "touch").symlink_to(shutil.which("touch") or "touch")
    return tmp_path


def install(path: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"} | {"PATH": str(path)}
    return subprocess.run(
        [str(path / "bash"), str(REPO / ".ci" / "install")], env=env, capture_output=True, text=True
    )


def test_without_root_it_says_what_to_run(bare: Path) -> None:
    """Old Java and old Go count as missing; one line a thing; apt-get is not called."""
    run = install(bare)
    lines = run.stdout.splitlines()
    assert run.returncode == 1
    assert "missing  Java 17 or newer (Debian package default-jre-headless)" in lines
    assert "missing  Maven (Debian package maven)" in lines
    assert "too old  go1.19.8: Ollama needs Go 1.24 or newer, install it by hand" in lines
    [command] = [line for line in lines if line.startswith("run ")]
    assert "apt-get install -y --no-install-recommends" in command
    assert {"default-jre-headless", "maven", "g++"} <= set(command.split())
    assert not (bare / "called").exists()


def test_what_is_there_is_not_installed_again(bare: Path) -> None:
    """A newer Go and Java, a Maven and a compiler are found."""
    (bare / "go").write_text(f"#!{bare}/bash\necho go version go1.26.8 linux/amd64\n")
    (bare / "java").write_text(f"#!{bare}/bash\necho 'openjdk version \"25\" 2025-09-16' >&2\n")
    for name in ("mvn", "g++", "initdb", "python3"):
        (bare / name).write_text(f"#!{bare}/bash\n")
        (bare / name).chmod(0o755)
    run = install(bare)
    assert run.returncode == 0, run.stdout
    assert all(line.startswith("present  ") for line in run.stdout.splitlines())
    assert not (bare / "called").exists()
