"""Builds the Ollama server with Go; its releases are not needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from deploy.owned_process import MissingTool

# The last release that builds from the module alone: later ones lack vendored C headers there.
VERSION = "0.9.6"
LOWEST_GO = (1, 24)
BUILD = Path(__file__).resolve().parents[3] / "build" / "ollama"


def go_version() -> tuple[int, int] | None:
    """Release of the `go` on PATH, None when there is none."""
    if shutil.which("go") is None:
        return None
    shown = subprocess.run(["go", "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", shown)
    return (int(found.group(1)), int(found.group(2))) if found else None


def missing_tool() -> str | None:
    """What keeps this machine from building, in one line; None when nothing does."""
    wanted = ".".join(map(str, LOWEST_GO))
    version = go_version()
    if version is None:
        return f"Go {wanted} or newer is missing: install a current Go release"
    if version < LOWEST_GO:
        found = ".".join(map(str, version))
        return f"Go {wanted} or newer is needed, {found} is installed: install a current Go release"
    if not (shutil.which("g++") or shutil.which("c++")):
        return "a C++ compiler is missing: run `apt-get install g++`"
    return None


def built(build: Path = BUILD) -> Path | None:
    """The server's binary if this version has been built."""
    binary = build / VERSION / "ollama"
    return binary if binary.is_file() else None


def build(folder: Path = BUILD) -> Path:
    """Build the server unless it is there (about two minutes); returns the binary."""
    if binary := built(folder):
        return binary
    if reason := missing_tool():
        raise MissingTool(reason)
    fresh = folder / f"{VERSION}-{os.getpid()}"
    fresh.mkdir(parents=True, exist_ok=True)
    print(f"building Ollama {VERSION} with Go, about two minutes …", file=sys.stderr, flush=True)
    started = time.monotonic()
    done = subprocess.run(
        ["go", "install", f"github.com/ollama/ollama@v{VERSION}"],
        cwd=fresh, env={**os.environ, "GOBIN": str(fresh)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0 or not (fresh / "ollama").is_file():
        shutil.rmtree(fresh, ignore_errors=True)
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise MissingTool(f"Ollama is missing and does not build here: {last}")
    try:
        fresh.rename(folder / VERSION)
    except OSError:  # another run was first
        shutil.rmtree(fresh, ignore_errors=True)
    print(f"built in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return folder / VERSION / "ollama"
