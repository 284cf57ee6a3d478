"""Single services as processes, and all processes that a stack has left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from assay_runtime.service import READY_PREFIX
from tests.e2e.stacks import REPO

MARK = "E2E_STACK_MARK"


def marked(mark: str) -> list[str]:
    """Command lines of the living processes that carry this mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in environment:
            found.append(line)
    return found


def none_left(mark: str, seconds: float = 10) -> list[str]:
    """What still runs after so long; empty is good."""
    end = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    return left


class ServiceProcess:
    """`python -m services.<name>` with nothing but the given settings."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}-{time.monotonic_ns()}.log"
        plain = {k: v for k, v in os.environ.items() if not k.startswith("ASSAY_")}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"services.{name}"],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=REPO,
                env={**plain, "ASSAY_HTTP__PORT": "0", **settings},
            )

    @property
    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def ready(self, seconds: float = 40) -> str:
        """Its HTTP address, once it is ready."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for line in self.text.splitlines():
                if line.startswith(READY_PREFIX):
                    address = str(json.loads(line.removeprefix(READY_PREFIX))["http"])
                    if self.is_ready(address):
                        return address
            assert self.process.poll() is None, self.text
            time.sleep(0.1)
        raise AssertionError(f"{self.name} is not ready: {self.text[-2000:]}")

    @staticmethod
    def is_ready(address: str) -> bool:
        try:
            answer: dict[str, Any] = httpx.get(address + "/readyz", timeout=2).json()
        except httpx.TransportError:
            return False
        return bool(answer["ready"])

    def exit_code(self, seconds: float = 30) -> int:
        return self.process.wait(seconds)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
