"""`assay batch run` and `assay revalidate` over a whole stack, with processes killed on the way
(SPEC S4.5-S4.8; issue 5 items 5 and 6)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stacks import ASSAY, QUICK, REPO, REQUESTED, StackProcess, command

PROCESS = "label_notes"
STEP = "label"
UNITS = 300
REFUSED = 5

FILES = {
    "config.yaml": f"""
pipeline:
  steps: [{{name: {STEP}}}]
prompts:
  template_dir: .
  templates: {{{STEP}: label.jinja2}}
schemas:
  schema_dir: .
  files: {{{STEP}: label.schema.json}}
validation:
  {STEP}:
    required: [label, weight]
    ranges: {{weight: [0, 100]}}
api: {{}}
processing: {{}}
assay:
  id: {PROCESS}
  version: "1"
  input_schema: input.schema.json
  temperatures: [0.3, 0.2, 0.1]
""",
    "label.jinja2": "Label the note: {{ text }}",
    "label.schema.json": json.dumps(
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["label", "weight"],
            "properties": {
                "label": {"enum": ["good", "bad", "unsure"]},
                "weight": {"type": "integer", "minimum": 0, "maximum": 100},
            },
        }
    ),
    "input.schema.json": json.dumps(
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["text"],
            "properties": {"text": {"type": "string"}},
        }
    ),
}


@pytest.fixture
def stack(broker: str, tmp_path: Path) -> Iterator[StackProcess]:
    """A stack with a process that it has never seen, and a model that misbehaves."""
    processes = tmp_path / "processes"
    shutil.copytree(REPO / "schemas" / "processes", processes)
    (processes / PROCESS).mkdir()
    for name, text in FILES.items():
        (processes / PROCESS / name).write_text(text, encoding="utf-8")
    running = StackProcess(
        tmp_path,
        ["--broker", broker, "--processes", str(processes), "--simulator=--fault-rate=0.5",
         "--simulator=--latency-ms=100"],
        QUICK,
    )  # fmt: skip
    try:
        yield running.ready()
    finally:
        running.stop()


class Batch:
    """A batch over a stack."""

    def __init__(self, stack: StackProcess, folder: Path) -> None:
        self._bootstrap = stack.bootstrap
        self._input = folder / "items.jsonl"
        self.out = folder / "results"

    def items(self, *items: dict[str, Any]) -> None:
        self._input.write_text("".join(json.dumps(item) + "\n" for item in items))

    def arguments(self, *more: str) -> list[str]:
        return [
            "batch", "run", "--process", PROCESS, "--input", str(self._input),
            "--out", str(self.out), "--bootstrap", self._bootstrap, "--timeout", "60", "--json",
            *more,
        ]  # fmt: skip

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(ASSAY), *self.arguments()], cwd=REPO, stdout=subprocess.DEVNULL
        )

    def run(self, *more: str) -> tuple[int, dict[str, Any]]:
        done = command(*self.arguments(*more))
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def read(self, kind: str) -> list[dict[str, Any]]:
        file = self.out / f"{STEP}_{kind}.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def ids(self) -> list[str]:
        return [
            record["unit_id"] for kind in ("validated", "failures") for record in self.read(kind)
        ]


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


async def test_kills_in_the_middle_of_a_batch(stack: StackProcess, tmp_path: Path) -> None:
    """S4.5, S4.6, S4.7: kill -9 of the scorer and of the batch; every unit ends in exactly one
    file, and no request was published twice. Then the failures: judged again, asked again."""
    batch = Batch(stack, tmp_path)
    units = [f"note {n}" for n in range(UNITS)]
    refused = [f"refused {n}" for n in range(REFUSED)]
    batch.items(
        *({"unit_id": unit, "text": f"This is {unit}."} for unit in units),
        *({"unit_id": unit, "text": 7} for unit in refused),
    )
    first = batch.start()
    until(lambda: len(batch.ids()) > 40)
    os.kill(stack.pid("scorer"), signal.SIGKILL)
    until(lambda: len(batch.ids()) > 120)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    before = Counter(batch.ids())
    assert len(before) < UNITS

    code, summary = batch.run()
    assert code == 1
    assert (summary["units"], summary["open"]) == (UNITS + REFUSED, 0)
    assert Counter(batch.ids()) == Counter([*units, *refused])
    asked = Counter(json.loads(r.value)["meta"]["unit_id"] for r in await stack.records(REQUESTED))
    assert asked == Counter([*units, *refused])
    failed = {record["unit_id"]: record for record in batch.read("failures")}
    assert set(refused) < set(failed)
    for unit in refused:
        assert failed[unit]["failure_stage"] == "pipeline_internal"
        assert failed[unit]["errors"][0]["path"].startswith("$.input")
    for unit in set(failed) - set(refused):
        assert failed[unit]["retry_count"] == 2
    assert batch.run()[1]["asked"] == 0

    process = tmp_path / "processes" / PROCESS
    judged = command("revalidate", "--process", process, "--json",
                     "--failures", batch.out / f"{STEP}_failures.jsonl")  # fmt: skip
    assert judged.returncode == 0, judged.stdout
    assert json.loads(judged.stdout)["summary"]["answers"] == len(failed)
    kept = command("revalidate", "--process", process, "--json",
                   "--evidence", stack.addresses["evidence"])  # fmt: skip
    assert kept.returncode == 0, kept.stdout
    counts = json.loads(kept.stdout)["summary"]
    assert counts["none"] >= UNITS
    schema = json.loads(FILES["label.schema.json"])
    schema["properties"]["weight"]["maximum"] = -1
    (process / "label.schema.json").write_text(json.dumps(schema))
    stricter = command("revalidate", "--process", process, "--json",
                       "--evidence", stack.addresses["evidence"])  # fmt: skip
    assert stricter.returncode == 1
    last = json.loads(stricter.stdout.splitlines()[-1])["summary"]
    assert last["rejected"] >= len(batch.read("validated"))

    retryable = [
        u for u, record in failed.items() if record["failure_stage"] != "pipeline_internal"
    ]
    assert retryable, "no unit failed for good: the model misbehaves too little for this test"
    code, summary = batch.run("--retry-failures")
    assert summary["asked"] == len(retryable)
    assert Counter(batch.ids()) == Counter([*units, *refused])
    for record in batch.read("failures"):
        if record["unit_id"] in retryable:
            assert record["retry_count"] == failed[record["unit_id"]]["retry_count"] + 1


def test_a_batch_without_a_valid_unit(stack: StackProcess, tmp_path: Path) -> None:
    """S4.8, and a process that nobody knows: both say so and end with their exit codes."""
    batch = Batch(stack, tmp_path)
    batch.items(*({"unit_id": f"u{n}", "text": n} for n in range(3)))
    code, summary = batch.run()
    assert code == 3
    assert summary["open"] == 0
    unknown = command(
        *(part if part != PROCESS else "no_such_process" for part in batch.arguments()),
        "--out", tmp_path / "elsewhere",
    )  # fmt: skip
    assert unknown.returncode == 1
    assert "there is no process 'no_such_process'" in unknown.stderr
