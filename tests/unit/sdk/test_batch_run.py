"""`assay batch run` against a stand-in for scorer and validator (SPEC S4.5, S4.6, S4.8)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from typer.testing import CliRunner, Result

from assay.batch.bus_kafka import REQUESTED, BatchBus, TopicPartition
from assay.batch.cli import app
from assay.batch.folder import ResultFolder
from assay.envelope import emit
from tests.unit.sdk.batch_stage import BatchStage, accepted, lines_of, rejected

PROCESS = "unit_tests"


@pytest.fixture
def stage(bootstrap: str) -> Iterator[BatchStage]:
    with BatchStage(bootstrap) as running:
        yield running


class Folder:
    """An input and a folder for its results."""

    def __init__(self, tmp_path: Path, bootstrap: str) -> None:
        self.input = tmp_path / "items.jsonl"
        self.out = tmp_path / "out"
        self._bootstrap = bootstrap

    def items(self, *items: dict[str, Any]) -> None:
        text = "".join(json.dumps(item) + "\n" for item in items)
        self.input.write_text(text, encoding="utf-8")

    def arguments(self, *more: str) -> list[str]:
        return ["run", "--process", PROCESS, "--input", str(self.input), "--out", str(self.out),
                "--bootstrap", self._bootstrap, "--timeout", "20", "--json", *more]  # fmt: skip

    def run(self, *more: str) -> tuple[int, dict[str, Any], Result]:
        result = CliRunner().invoke(app, self.arguments(*more))
        summary = result.stdout.strip().splitlines()
        return result.exit_code, json.loads(summary[-1]) if summary else {}, result

    def read(self, name: str) -> list[dict[str, Any]]:
        path = self.out / name
        return lines_of(path.read_text(encoding="utf-8")) if path.exists() else []

    def ids(self, name: str) -> list[Any]:
        return [record["unit_id"] for record in self.read(name)]


@pytest.fixture
def folder(tmp_path: Path, bootstrap: str) -> Folder:
    return Folder(tmp_path, bootstrap)


def test_each_unit_is_in_one_file(folder: Folder, stage: BatchStage) -> None:
    """S4.5, issue 5 item 5: failure records as the seed has them, each line with its unit_id."""
    folder.items(
        {"unit_id": "a", "end": "ok", "text": "x"},
        {"unit_id": 7, "end": "bad"},
        {"unit_id": "c", "input": {"end": "dead"}},
        {"end": "ok"},
    )
    code, summary, _ = folder.run()
    assert code == 1
    assert summary["steps"] == {"draft": {"validated": 2, "failed": 2}}
    valid = {record["unit_id"]: record for record in folder.read("draft_validated.jsonl")}
    assert valid["a"] == {
        "unit_id": "a", "end": "ok", "text": "x", "answer": 42, "_metadata": valid["a"]["_metadata"]
    }  # fmt: skip
    assert [name for name in valid if name.startswith("unit-")]
    failed = {record["unit_id"]: record for record in folder.read("draft_failures.jsonl")}
    assert set(failed) == {7, "c"}
    metadata = failed[7].pop("_metadata")
    assert failed[7] == {
        "unit_id": 7,
        "failure_stage": "validation",
        "input": {"end": "bad"},
        "raw_response": '{"answer": 41}',
        "errors": [{"path": "$.answer", "rule": "right", "message": "41 is not 42"}],
        "retry_count": 2,
    }
    assert metadata["step"] == "draft"
    assert failed["c"]["failure_stage"] == "pipeline_internal"
    assert failed["c"]["raw_response"] is None
    assert failed["c"]["errors"][0]["path"] == "$.input.text"
    assert failed["c"]["errors"][0]["rule"] == "invalid_input"


def test_all_valid_is_zero(folder: Folder, stage: BatchStage) -> None:
    folder.items({"unit_id": "a", "end": "ok"}, {"unit_id": "b", "end": "ok"})
    code, summary, result = folder.run()
    assert code == 0, result.stderr
    assert (summary["units"], summary["ended"], summary["open"]) == (2, 2, 0)


def test_steps_have_files_of_their_own(folder: Folder, stage: BatchStage) -> None:
    """S4.12: a unit that goes on is open until its last step; fields accumulate in the lines."""
    folder.items({"unit_id": "a", "end": "two"}, {"unit_id": "b", "end": "bad"})
    code, summary, _ = folder.run()
    assert code == 1
    assert folder.ids("draft_validated.jsonl") == ["a"]
    assert folder.ids("draft_failures.jsonl") == ["b"]
    (polished,) = folder.read("polish_validated.jsonl")
    assert (polished["draft"], polished["polished"]) == ("d", "p")
    assert not (folder.out / "polish_failures.jsonl").exists()
    assert summary["ended"] == 2


def test_a_unit_that_ends_at_a_later_step(folder: Folder, stage: BatchStage) -> None:
    """S4.5, S4.12: its first answer is on file, also where it is read after the end; the failure
    stands at the step it ended at, with what was accumulated until then."""
    folder.items({"unit_id": "a", "end": "late"}, {"unit_id": "b", "end": "two"})
    code, summary, _ = folder.run()
    assert code == 1
    assert sorted(folder.ids("draft_validated.jsonl")) == ["a", "b"]
    assert folder.ids("polish_validated.jsonl") == ["b"]
    (failed,) = folder.read("polish_failures.jsonl")
    assert (failed["unit_id"], failed["input"]) == ("a", {"end": "late", "draft": "d"})
    assert not (folder.out / "draft_failures.jsonl").exists()
    assert summary["steps"]["polish"] == {"validated": 1, "failed": 1}
    assert folder.run()[1]["asked"] == 0


def test_a_retry_begins_at_the_step_that_failed(folder: Folder, stage: BatchStage) -> None:
    """S4.6: the steps before it are not paid for again."""
    folder.items({"unit_id": "a", "end": "late"}, {"unit_id": "b", "end": "two"})
    folder.run()
    code, summary, result = folder.run("--retry-failures")
    assert (code, summary["asked"]) == (0, 1), result.stderr
    again = stage.asked[-1]
    assert (again.meta.step, again.input) == ("polish", {"end": "late", "draft": "d"})
    assert [error.rule for error in again.feedback] == ["right"]
    assert sorted(folder.ids("polish_validated.jsonl")) == ["a", "b"]
    assert sorted(folder.ids("draft_validated.jsonl")) == ["a", "b"]


def test_a_late_repeat_does_not_end_the_retry(folder: Folder, stage: BatchStage) -> None:
    """S4.6: a validator killed after it had published says again how the first request ended."""
    folder.items({"unit_id": "a", "end": "mended"})
    folder.run()
    (asked,) = stage.asked
    publish(folder, rejected(asked.meta.model_copy(update={"step": "draft"}), asked.input))
    code, _, result = folder.run("--retry-failures")
    assert code == 0, result.stderr
    assert folder.ids("draft_validated.jsonl") == ["a"]


def test_a_failed_expression_step(folder: Folder, stage: BatchStage) -> None:
    """S4.12, S4.8: a file of its own; one such failure does not make the whole batch one."""
    folder.items({"unit_id": "a", "end": "computed"}, {"unit_id": "b", "end": "two"})
    code, summary, _ = folder.run()
    assert (code, summary["zero_valid"]) == (1, [])
    assert folder.ids("compute_failures.jsonl") == ["a"]
    assert folder.run("--retry-failures")[1]["asked"] == 0


def test_an_empty_result_is_a_failure(folder: Folder, stage: BatchStage) -> None:
    """S4.5: what the process gives instead of an answer is in neither validated file; the failure
    says how the unit ended, and can be asked again."""
    folder.items({"unit_id": "a", "end": "empty"}, {"unit_id": "b", "end": "ok"})
    code, _, _ = folder.run()
    assert code == 1
    assert folder.ids("draft_validated.jsonl") == ["b"]
    (failed,) = folder.read("draft_failures.jsonl")
    assert (failed["unit_id"], failed["_metadata"]["ends_as"]) == ("a", "empty_result")
    assert folder.run("--retry-failures")[1]["asked"] == 1


def test_a_chain_goes_on_while_the_batch_is_down(folder: Folder, stage: BatchStage) -> None:
    """Issue 5 item 5: a unit between two steps is waited for, not asked again."""
    folder.items({"unit_id": "a", "end": "half"}, {"unit_id": "b", "end": "two"})
    killed(started(folder), folder, lambda: len(folder.ids("draft_validated.jsonl")) == 2)
    (asked,) = [request for request in stage.asked if request.meta.unit_id == "a"]
    later = asked.meta.model_copy(update={"step": "polish"})
    publish(folder, accepted(later, {**asked.input, "draft": "d"}, {"draft": "d", "polished": "p"}))
    code, summary, _ = folder.run()
    assert (code, summary["asked"]) == (0, 0)
    assert sorted(folder.ids("polish_validated.jsonl")) == ["a", "b"]
    assert sorted(folder.ids("draft_validated.jsonl")) == ["a", "b"]


def test_a_second_answer_to_a_step_that_led_on(folder: Folder, stage: BatchStage) -> None:
    """Issue 5 item 5: a scorer killed after it had answered asks again, and that answer is refused;
    the chain that runs is the one that counts."""
    folder.items({"unit_id": "a", "end": "half"})
    running = started(folder)
    until(lambda: folder.ids("draft_validated.jsonl"))
    (asked,) = stage.asked
    publish(folder, rejected(asked.meta.model_copy(update={"step": "draft"}), asked.input))
    time.sleep(1)
    assert running.poll() is None, "it must not end by the second answer"
    later = asked.meta.model_copy(update={"step": "polish"})
    publish(folder, accepted(later, {**asked.input, "draft": "d"}, {"draft": "d", "polished": "p"}))
    running.communicate(timeout=30)
    assert running.returncode == 0
    assert folder.ids("polish_validated.jsonl") == ["a"]
    assert not (folder.out / "draft_failures.jsonl").exists()


def test_a_chain_that_was_lost_begins_anew(folder: Folder, stage: BatchStage) -> None:
    """Issue 5 item 5: a run that gave up is followed by one that asks again; the unit may then
    fail at a step that it had passed, and ends there."""
    folder.items({"unit_id": "a", "end": "half"}, {"unit_id": "b", "end": "two"})
    code, summary, _ = folder.run("--timeout", "1")
    assert (code, summary["open"]) == (1, 1)
    assert sorted(folder.ids("draft_validated.jsonl")) == ["a", "b"]
    stage.end = "bad"
    code, summary, _ = folder.run()
    assert (code, summary["asked"], summary["open"]) == (1, 1, 0)
    assert folder.ids("draft_failures.jsonl") == ["a"]
    assert folder.run()[1]["asked"] == 0


def test_a_second_run_asks_nothing(folder: Folder, stage: BatchStage) -> None:
    folder.items({"unit_id": "a", "end": "two"}, {"unit_id": "b", "end": "bad"})
    folder.run()
    assert folder.run()[1]["asked"] == 0
    assert sorted(stage.units()) == ["a", "b"]


def test_max_units_then_the_rest(folder: Folder, stage: BatchStage) -> None:
    folder.items(*({"unit_id": f"u{n}", "end": "ok"} for n in range(5)))
    assert folder.run("--max-units", "2")[1]["units"] == 2
    assert sorted(stage.units()) == ["u0", "u1"]
    code, summary, _ = folder.run()
    assert (code, summary["units"], summary["asked"]) == (0, 5, 3)
    assert sorted(folder.ids("draft_validated.jsonl")) == [f"u{n}" for n in range(5)]


def test_no_valid_unit_has_an_exit_code_of_its_own(folder: Folder, stage: BatchStage) -> None:
    """S4.8."""
    folder.items({"unit_id": "a", "end": "bad"}, {"unit_id": "b", "end": "schema"})
    code, summary, result = folder.run()
    assert code == 3
    assert summary["zero_valid"] == ["draft"]
    assert "none of 2 units is valid" in result.stderr


def test_units_that_never_began(folder: Folder, stage: BatchStage) -> None:
    """S4.8: where every unit was refused, no step has a name; they are on file all the same."""
    folder.items({"unit_id": "a", "end": "dead"}, {"unit_id": "b", "end": "dead"})
    code, _, _ = folder.run()
    assert code == 3
    assert sorted(folder.ids("request_failures.jsonl")) == ["a", "b"]
    assert folder.run()[1]["asked"] == 0


def test_retrying_failures(folder: Folder, stage: BatchStage) -> None:
    """S4.6: schema_validation and validation are asked again with their errors, retry_count
    grows, old records go to .bak; pipeline_internal stays."""
    folder.items(
        {"unit_id": "a", "end": "mended"},
        {"unit_id": "b", "end": "bad"},
        {"unit_id": "c", "end": "schema"},
        {"unit_id": "d", "end": "internal"},
        {"unit_id": "e", "end": "ok"},
    )
    folder.run()
    before = {record["unit_id"]: record for record in folder.read("draft_failures.jsonl")}
    first = len(stage.asked)
    code, summary, result = folder.run("--retry-failures")
    assert code == 1, result.stderr
    assert summary["asked"] == 3
    again = {request.meta.unit_id: request for request in stage.asked[first:]}
    assert set(again) == {"a", "b", "c"}
    assert again["b"].meta.attempt == 4
    assert again["b"].meta.step == "draft"
    assert [error.rule for error in again["b"].feedback] == ["right"]
    assert sorted(folder.ids("draft_validated.jsonl")) == ["a", "e"]
    after = {record["unit_id"]: record for record in folder.read("draft_failures.jsonl")}
    assert set(after) == {"b", "c", "d"}
    assert after["b"]["retry_count"] == before["b"]["retry_count"] + 1
    assert after["d"] == before["d"]
    assert sorted(folder.ids("draft_failures.jsonl.bak")) == ["a", "b", "c"]
    asked = {request.meta.request_id for request in stage.asked}
    assert len(asked) == len(stage.asked)


def test_a_crash_between_archiving_and_asking(folder: Folder, stage: BatchStage) -> None:
    """S4.6: what was taken out to be asked again is asked again, by any later run."""
    folder.items({"unit_id": "a", "end": "mended"}, {"unit_id": "b", "end": "ok"})
    folder.run()
    opened = ResultFolder(folder.out)
    assert opened.archive_retryable() == 1
    opened.close()
    code, summary, _ = folder.run()
    assert (code, summary["asked"]) == (0, 1)
    assert stage.asked[-1].meta.attempt == 4
    assert sorted(folder.ids("draft_validated.jsonl")) == ["a", "b"]


def started(folder: Folder) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from assay.batch.cli import app; app()", *folder.arguments()],
        stdout=subprocess.PIPE,
        text=True,
    )


def until(true: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def killed(running: subprocess.Popen[str], folder: Folder, event: Callable[[], Any]) -> None:
    """kill -9, after the event and after positions were saved behind it."""
    try:
        until(event)
        saved = folder.out / "positions.json"
        for _ in range(2):
            before = saved.stat().st_mtime_ns
            until(lambda: saved.stat().st_mtime_ns != before)  # noqa: B023 - used at once
    finally:
        running.kill()
        running.communicate()


def test_outcomes_that_came_while_it_was_down(folder: Folder, stage: BatchStage) -> None:
    """Item 5: they are read on start, and what stands on the request topic is not asked again."""
    folder.items({"unit_id": "a", "end": "silent"}, {"unit_id": "b", "end": "ok"})
    killed(started(folder), folder, lambda: folder.ids("draft_validated.jsonl"))
    code, summary, _ = folder.run("--timeout", "1")
    assert (code, summary["asked"], summary["open"]) == (1, 0, 1), "asked again, not waited for"
    (asked,) = [request for request in stage.asked if request.meta.unit_id == "a"]
    meta = asked.meta.model_copy(update={"step": "draft"})
    publish(folder, accepted(meta, asked.input, {"answer": 1}))
    code, summary, _ = folder.run()
    assert (code, summary["asked"]) == (0, 0)
    assert sorted(folder.ids("draft_validated.jsonl")) == ["a", "b"]
    assert stage.units().count("a") == 1


def test_a_dead_letter_outlives_a_crash(folder: Folder, stage: BatchStage) -> None:
    """It waits for the name of the first step, and is read again until it is on file."""
    folder.items({"unit_id": "a", "end": "silent"}, {"unit_id": "b", "end": "dead"})
    killed(started(folder), folder, lambda: len(stage.asked) == 2)
    (asked,) = [request for request in stage.asked if request.meta.unit_id == "a"]
    publish(folder, rejected(asked.meta.model_copy(update={"step": "draft"}), asked.input))
    code, summary, _ = folder.run()
    assert (code, summary["asked"]) == (3, 0)
    assert sorted(folder.ids("draft_failures.jsonl")) == ["a", "b"]


def publish(folder: Folder, event: Any) -> None:
    async def go() -> None:
        bootstrap = folder.arguments()[folder.arguments().index("--bootstrap") + 1]
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        message = emit(event, topic=event.type, source="/late", parent_id="late")
        await producer.send_and_wait(
            message.topic, value=message.value, key=message.key, headers=list(message.headers)
        )
        await producer.stop()

    asyncio.run(go())


def test_giving_up_and_asking_again(folder: Folder, stage: BatchStage) -> None:
    """Without news it ends with 1; the next run asks the same requests again."""
    folder.items({"unit_id": "a", "end": "ok"})
    stage.mute = True
    code, summary, result = folder.run("--timeout", "1")
    assert (code, summary["open"]) == (1, 1)
    assert "no news for 1 s" in result.stderr
    stage.mute = False
    code, summary, _ = folder.run()
    assert (code, summary["asked"]) == (0, 1)
    assert len({request.meta.request_id for request in stage.asked}) == 1


def test_an_unknown_process_spoils_nothing(folder: Folder, stage: BatchStage) -> None:
    """A wrong --process is said, only few are asked, and a later run may put it right."""
    items = [{"unit_id": f"u{n}", "end": "unknown"} for n in range(50)]
    folder.items(*items)
    code, _, result = folder.run()
    assert code == 1
    assert "no process of that name" in result.stderr
    assert len(stage.asked) <= 8
    assert not list(folder.out.glob("*_failures.jsonl"))
    stage.asked.clear()
    code, _, _ = folder.run()
    assert code == 1
    assert 0 < len(stage.asked) <= 8


def test_bad_lines_and_duplicates_are_said(folder: Folder, stage: BatchStage) -> None:
    lines = [
        '{"unit_id": "a", "end": "ok"}',
        '{"unit_id": "a", "end": "ok"}',
        '{"unit_id": "a", "end": "bad"}',
        "no json",
        '{"end": "ok"}',
        '{"end": "ok"}',
    ]
    folder.input.write_text("\n".join(lines), encoding="utf-8")
    code, summary, result = folder.run()
    assert code == 1
    assert (summary["units"], summary["duplicates"], summary["unusable_lines"]) == (2, 3, 2)
    assert "items.jsonl:3: unit 'a' stands already on line 1, with other content" in result.stderr
    assert "items.jsonl:4: no JSON" in result.stderr


def test_a_unit_too_large_for_the_topic(folder: Folder, stage: BatchStage) -> None:
    folder.items({"unit_id": "a", "end": "ok", "x": "y" * 1_100_000}, {"unit_id": "b", "end": "ok"})
    code, _, _ = folder.run()
    assert code == 1
    (failure,) = folder.read("draft_failures.jsonl")
    assert (failure["unit_id"], failure["errors"][0]["rule"]) == ("a", "unusable_item")


def test_the_folder_of_another_batch(folder: Folder, stage: BatchStage) -> None:
    folder.items({"unit_id": "a", "end": "ok"})
    folder.run()
    result = CliRunner().invoke(app, [a if a != PROCESS else "another" for a in folder.arguments()])
    assert result.exit_code == 2
    opened = ResultFolder(folder.out)
    try:
        assert folder.run()[0] == 2
    finally:
        opened.close()


def test_ctrl_c_says_where_it_stands(folder: Folder, stage: BatchStage) -> None:
    folder.items({"unit_id": "a", "end": "silent"}, {"unit_id": "b", "end": "ok"})
    running = started(folder)
    until(lambda: folder.ids("draft_validated.jsonl"))
    os.kill(running.pid, signal.SIGINT)
    output, _ = running.communicate(timeout=30)
    assert running.returncode == 130
    assert json.loads(output)["open"] == 1


@pytest.mark.parametrize(
    ("saved", "start"),
    [
        (None, 90),
        ({"cluster": "here", "positions": {REQUESTED: {"0": 50}}}, 50),
        ({"cluster": "here", "positions": {REQUESTED: {"0": 5}}}, 10),
        ({"cluster": "here", "positions": {REQUESTED: {"0": 91}}}, 10),
        ({"cluster": "here", "positions": {}}, 10),
        ({"cluster": "elsewhere", "positions": {REQUESTED: {"0": 50}}}, 10),
    ],
)
async def test_where_reading_begins(saved: Any, start: int) -> None:
    """A position means something on its own cluster and inside its log only; an embedded broker
    is another cluster at each start."""
    bus = BatchBus("127.0.0.1:1", saved, 1)
    bus.cluster = "here"
    try:
        assert bus._start(TopicPartition(REQUESTED, 0), 10, 90) == start
    finally:
        await bus.__aexit__()
