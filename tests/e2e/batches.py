"""`assay batch run` from outside, and processes to run it on."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.e2e.stacks import ASSAY, REPO, StackProcess, command


def processes_in(folder: Path, **added: Mapping[str, str]) -> Path:
    """The processes that ship, and more by name: the texts of their files."""
    root = folder / "processes"
    shutil.copytree(REPO / "schemas" / "processes", root)
    for name, files in added.items():
        for file, text in files.items():
            (root / name / file).parent.mkdir(parents=True, exist_ok=True)
            (root / name / file).write_text(text, encoding="utf-8")
    return root


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


class Batch:
    """A batch of a process over a stack."""

    def __init__(self, stack: StackProcess, folder: Path, process: str) -> None:
        self._bootstrap = stack.bootstrap
        self._process = process
        self._input = folder / f"{process}.jsonl"
        self.out = folder / f"{process}-results"

    def items(self, *items: dict[str, Any]) -> None:
        self._input.write_text("".join(json.dumps(item) + "\n" for item in items))

    def arguments(self, *more: str | Path, process: str | None = None) -> list[str]:
        return [
            "batch", "run", "--process", process or self._process, "--input", str(self._input),
            "--out", str(self.out), "--bootstrap", self._bootstrap, "--timeout", "60", "--json",
            *map(str, more),
        ]  # fmt: skip

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(ASSAY), *self.arguments()], cwd=REPO, stdout=subprocess.DEVNULL
        )

    def run(self, *more: str) -> tuple[int, dict[str, Any]]:
        done = command(*self.arguments(*more))
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def read(self, name: str) -> list[dict[str, Any]]:
        """The whole lines of `{step}_validated` or `{step}_failures`."""
        file = self.out / f"{name}.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def ids(self, *names: str) -> list[Any]:
        return [record["unit_id"] for name in names for record in self.read(name)]

    def ends(self, last: str) -> list[Any]:
        """Units where they ended: valid at the last step, or failed at any."""
        failures = [file.stem for file in sorted(self.out.glob("*_failures.jsonl"))]
        return self.ids(f"{last}_validated", *failures)
