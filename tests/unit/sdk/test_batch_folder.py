"""The folder of a batch survives what a crash leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.batch.folder import FolderError, ResultFolder
from assay.batch.lines import file_step, is_retryable, result_line
from assay.batch.plan import open_retries, read_standing
from assay.batch.requests import Batch
from assay.batch.standing import Standing, StepCount, Summary
from assay.batch.step_outcomes import StepOutcome
from assay.batch.window import FIRST, RECORDS, Window


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ResultFolder]:
    opened = ResultFolder(tmp_path / "out")
    yield opened
    opened.close()


BATCH = Batch("b", "p")


def failure(
    unit: Any, stage: str = "validation", count: int = 0, request: str = "first", step: str = "s"
) -> dict[str, Any]:
    return {
        "unit_id": unit,
        "failure_stage": stage,
        "input": {},
        "raw_response": None,
        "errors": [],
        "retry_count": count,
        "_metadata": {"step": step, "last": True, "request_id": request},
    }


def test_lines_are_read_back(folder: ResultFolder) -> None:
    folder.add("s", "validated", {"unit_id": "a", "_metadata": {"last": False}})
    folder.add("s", "failures", failure("b"))
    folder.commit()
    folder.add("s", "validated", {"unit_id": "c"})
    folder.commit()
    standing = read_standing(folder.lines())
    assert standing.steps == {"s": StepCount(2, 1)}
    assert standing.ended == {"b", "c"}


def test_a_torn_last_line_is_cut_off(folder: ResultFolder) -> None:
    """Seen by the next run as never written; the file goes on with whole lines."""
    folder.add("s", "validated", {"unit_id": "a"})
    folder.commit()
    file = folder.path / "s_validated.jsonl"
    with file.open("ab") as torn:
        torn.write(b'{"unit_id": "b", "answ')
    assert read_standing(folder.lines()).ended == {"a"}
    folder.add("s", "validated", {"unit_id": "b"})
    folder.commit()
    assert [json.loads(line)["unit_id"] for line in file.read_text().splitlines()] == ["a", "b"]


def test_a_damaged_line_is_no_torn_one(folder: ResultFolder) -> None:
    (folder.path / "s_validated.jsonl").write_text('{"x"\n{"unit_id": "b"}\n')
    with pytest.raises(FolderError, match=r"s_validated\.jsonl:1: no result line"):
        list(folder.lines())


def test_one_run_at_a_time(folder: ResultFolder) -> None:
    with pytest.raises(FolderError, match="another batch run"):
        ResultFolder(folder.path)


def test_archiving_twice_loses_nothing(folder: ResultFolder) -> None:
    """S4.6: a crash after the archive was written and before the file was replaced."""
    for unit, stage in (
        ("a", "validation"),
        ("b", "pipeline_internal"),
        ("c", "schema_validation"),
    ):
        folder.add("s", "failures", failure(unit, stage))
    folder.commit()
    file = folder.path / "s_failures.jsonl"
    before = file.read_bytes()
    assert folder.archive_retryable() == 2
    assert [record["unit_id"] for _, _, record in folder.lines()] == ["b"]
    file.write_bytes(before)
    assert open_retries(folder.archived(), BATCH, read_standing(folder.lines())) == {}
    assert folder.archive_retryable() == 2
    assert set(open_retries(folder.archived(), BATCH, read_standing(folder.lines()))) == {"a", "c"}


def test_only_the_last_failure_of_a_unit_is_asked_again() -> None:
    """S4.6: each retry failed under the id of the one before; the files come in the order of their
    names, not of the steps."""
    first = failure("a", count=2, step="draft")
    second = failure("a", count=3, step="draft", request=BATCH.retry_of(first))
    third = failure("a", count=2, step="coda", request=BATCH.retry_of(second))
    for archived in ([first], [first, second], [third, first, second, second]):
        last = third if third in archived else archived[-1]
        found = open_retries([*archived, failure("b")], BATCH, Standing(ended={"b"}))
        assert found == {"a": last}


def test_a_retry_that_goes_on_is_still_open() -> None:
    """S4.6, S4.12: it passed the step it had failed at; what it leads to comes under its id."""
    standing = Standing()
    standing.note("draft", "x", valid=True, last=False)
    archived = [failure("x", step="draft")]
    assert open_retries(archived, BATCH, standing) == {"x": archived[0]}


def test_a_unit_ends_once() -> None:
    """S4.5: a second answer, as a killed service leaves it, is passed over, at any step."""
    standing = Standing()
    assert standing.note("s", "a", valid=True, last=True)
    for step in ("s", "t"):
        assert not standing.note(step, "a", valid=False, last=True)
    assert standing.steps["s"] == StepCount(1, 0)


def test_a_step_that_led_on_may_be_read_after_the_end() -> None:
    """S4.12: topics are read side by side. It counts once, and nothing ends by it."""
    standing = Standing()
    assert standing.note("polish", "a", valid=False, last=True)
    assert standing.note("draft", "a", valid=True, last=False)
    assert not standing.note("draft", "a", valid=True, last=False)
    assert standing.steps == {"polish": StepCount(0, 1), "draft": StepCount(1, 0)}


def test_a_unit_asked_anew_may_end_at_a_step_it_had_passed() -> None:
    """Issue 5 item 5: the broker lost the rest of its chain; a later run must see that it ended."""
    standing = Standing()
    standing.note("draft", "a", valid=True, last=False)
    assert standing.note("draft", "a", valid=False, last=True)
    assert standing.ended == {"a"}


def test_failures_at_a_step_without_lines_of_its_own() -> None:
    """S4.8: an expression step writes none when it works; where a unit got through it works."""
    standing = Standing()
    standing.note("ask", "a", valid=True, last=False)
    standing.note("compute", "a", valid=False, last=True)
    assert standing.zero_valid() == ["compute"]
    standing.note("ask", "b", valid=True, last=True)
    assert standing.zero_valid() == []


@pytest.mark.parametrize(
    ("steps", "ended", "unusable", "code"),
    [
        ({"s": StepCount(2, 0)}, 2, 0, 0),
        ({"s": StepCount(1, 1)}, 2, 0, 1),
        ({"s": StepCount(2, 0)}, 2, 1, 1),
        ({"s": StepCount(1, 0)}, 1, 0, 1),
        ({"s": StepCount(0, 2)}, 2, 0, 3),
        ({"s": StepCount(2, 0), "t": StepCount(0, 2)}, 2, 0, 3),
        ({"s": StepCount(0, 1)}, 1, 0, 1),
        ({}, 2, 0, 0),
    ],
)
def test_exit_codes(steps: dict[str, StepCount], ended: int, unusable: int, code: int) -> None:
    """S4.8: zero valid units are a failure of the batch, once all units ended."""
    standing = Standing(steps)
    summary = Summary("b", "p", 2, ended, 0, 0, unusable, 1.0, steps, standing.zero_valid())
    assert summary.exit_code == code


def test_lines_keep_the_ids_spelling_and_every_field() -> None:
    outcome = StepOutcome("r", "s", True, {"x": 1, "unit_id": "no"}, output={"y": 2, "x": 3})
    line = result_line(7, {}, outcome)
    assert line["_metadata"] == {"request_id": "r", "step": "s", "last": True}
    assert {name: line[name] for name in ("unit_id", "x", "y")} == {"unit_id": 7, "x": 3, "y": 2}
    listed = StepOutcome("r", "s", True, None, output=[1])
    assert result_line("a", {"x": 1}, listed)["output"] == [1]


def test_step_names_stay_in_the_folder() -> None:
    assert file_step("../../etc/x") == "_.._etc_x"
    assert file_step("...") == "_"
    assert file_step("déjà-vu.2") == "déjà-vu.2"


def test_what_is_asked_again() -> None:
    stages = ("schema_validation", "validation", "pipeline_internal")
    assert [is_retryable(failure("a", stage)) for stage in stages] == [True, True, False]


async def test_the_window_opens_with_the_first_news() -> None:
    import asyncio

    window = Window()
    for n in range(FIRST):
        await window.take(str(n), 10)
    waiting = asyncio.create_task(window.take("more", 10))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    window.widen()
    await asyncio.wait_for(waiting, 1)
    for n in range(FIRST + 1, RECORDS):
        await window.take(str(n), 10)
    waiting = asyncio.create_task(window.take("last", 10))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    window.give("0")
    await asyncio.wait_for(waiting, 1)


async def test_the_window_is_bounded_in_bytes() -> None:
    import asyncio

    window = Window()
    await window.take("large", 5_000_000)
    waiting = asyncio.create_task(window.take("small", 1))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    window.give("large")
    await asyncio.wait_for(waiting, 1)
