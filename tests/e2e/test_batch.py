"""`assay batch run` and `assay revalidate` over a whole stack, with processes killed on the way
(SPEC S4.5-S4.8; issue 5 items 5 and 6)."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.batches import Batch, processes_in, until
from tests.e2e.stacks import QUICK, REQUESTED, StackProcess, command

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
    processes = processes_in(tmp_path, **{PROCESS: FILES})
    running = StackProcess(
        tmp_path,
        ["--broker", broker, "--processes", str(processes), "--simulator=--fault-rate=0.7",
         "--simulator=--latency-ms=100"],
        QUICK,
    )  # fmt: skip
    try:
        yield running.ready()
    finally:
        running.stop()


async def test_kills_in_the_middle_of_a_batch(stack: StackProcess, tmp_path: Path) -> None:
    """S4.5, S4.6, S4.7: kill -9 of the scorer and of the batch; every unit ends in exactly one
    file, and no request was published twice. Then the failures: judged again, asked again."""
    batch = Batch(stack, tmp_path, PROCESS)
    units = [f"note {n}" for n in range(UNITS)]
    refused = [f"refused {n}" for n in range(REFUSED)]
    batch.items(
        *({"unit_id": unit, "text": f"This is {unit}."} for unit in units),
        *({"unit_id": unit, "text": 7} for unit in refused),
    )
    first = batch.start()
    until(lambda: len(batch.ends(STEP)) > 40)
    os.kill(stack.pid("scorer"), signal.SIGKILL)
    until(lambda: len(batch.ends(STEP)) > 120)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    before = Counter(batch.ends(STEP))
    assert len(before) < UNITS

    code, summary = batch.run()
    assert code == 1
    assert (summary["units"], summary["open"]) == (UNITS + REFUSED, 0)
    assert Counter(batch.ends(STEP)) == Counter([*units, *refused])
    asked = Counter(json.loads(r.value)["meta"]["unit_id"] for r in await stack.records(REQUESTED))
    assert asked == Counter([*units, *refused])
    failed = {record["unit_id"]: record for record in batch.read(f"{STEP}_failures")}
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
    assert last["rejected"] >= len(batch.read(f"{STEP}_validated"))

    retryable = [
        u for u, record in failed.items() if record["failure_stage"] != "pipeline_internal"
    ]
    assert retryable, "no unit failed for good: the model misbehaves too little for this test"
    code, summary = batch.run("--retry-failures")
    assert summary["asked"] == len(retryable)
    assert Counter(batch.ends(STEP)) == Counter([*units, *refused])
    for record in batch.read(f"{STEP}_failures"):
        if record["unit_id"] in retryable:
            assert record["retry_count"] == failed[record["unit_id"]]["retry_count"] + 1


def test_a_batch_without_a_valid_unit(stack: StackProcess, tmp_path: Path) -> None:
    """S4.8, and a process that nobody knows: both say so and end with their exit codes."""
    batch = Batch(stack, tmp_path, PROCESS)
    batch.items(*({"unit_id": f"u{n}", "text": n} for n in range(3)))
    code, summary = batch.run()
    assert code == 3
    assert summary["open"] == 0
    unknown = command(*batch.arguments("--out", tmp_path / "elsewhere", process="no_such_process"))
    assert unknown.returncode == 1
    assert "there is no process 'no_such_process'" in unknown.stderr
