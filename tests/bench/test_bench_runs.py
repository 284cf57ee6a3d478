"""A run of the bench: what fails is on record and the rest goes on; what was quick stays marked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bench import __main__ as bench
from tests.bench import readme_table, summary
from tests.bench.scoring_load import Stuck
from tests.bench.test_bench_reports import SECTIONS

CLEAN = {"commit": "a1b2c3d", "dirty": False}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """build/ and README.md of a test's own."""
    monkeypatch.chdir(tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text("<!-- bench -->\nas it was\n<!-- /bench -->\n", encoding="utf-8")
    monkeypatch.setattr(readme_table, "README", readme)
    return tmp_path


@pytest.fixture
def measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What each row finds, raised where it is an error; the broker is none."""

    @contextmanager
    def broker() -> Iterator[tuple[str, Path]]:
        yield "", folder

    found: dict[str, Any] = {row: SECTIONS.get(row, {"brokers": {}}) for row in bench.ROWS}
    found["chain"] = {**found["chain"], "failed": {}}

    def measure(row: str, *_: object) -> dict[str, Any]:
        if isinstance(found[row], Exception):
            raise found[row]
        section: dict[str, Any] = found[row]
        return section

    monkeypatch.setattr(bench, "bench_broker", broker)
    monkeypatch.setattr(bench, "_measure", measure)
    monkeypatch.setattr(bench, "measured_tree", lambda: CLEAN)
    return found


def run(monkeypatch: pytest.MonkeyPatch, module: Any, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    code: int = module.main()
    return code


def sections(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "build" / "bench.json").read_text("utf-8"))
    return document


def test_a_row_that_fails_is_on_record_and_the_others_go_on(
    measured: dict[str, Any],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One stuck request, or what nobody has thought of, ends its row and no other."""
    measured["memory"] = AssertionError("99 of 100\nrecords | were written")
    measured["pipeline"] = Stuck("3 requests are open and no score came for 30 s")
    assert run(monkeypatch, bench) == 1
    found = sections(folder)
    assert found.keys() == set(bench.ROWS)
    assert found["memory"]["error"] == "AssertionError: 99 of 100 records | were written"
    assert found["pipeline"]["error"].startswith("Stuck: 3 requests are open")
    assert found["latency"]["p50_ms"] == 9
    assert all(section["machine"]["cores"] for section in found.values())
    said = capsys.readouterr()
    assert "pipeline was not measured: Stuck" in said.err
    assert "not measured: Stuck" in said.out
    made = summary.markdown(found)
    assert "| memory | not measured: AssertionError: 99 of 100 records / were written |  |" in made
    assert "5 hops at 50 events/s" in made


def test_a_broker_that_does_not_start_leaves_the_rows_without_it(
    measured: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def broker() -> Iterator[tuple[str, Path]]:
        raise RuntimeError("no Java")
        yield "", folder

    monkeypatch.setattr(bench, "bench_broker", broker)
    assert run(monkeypatch, bench) == 1
    found = sections(folder)
    assert found["chain"]["error"] == found["model_stage"]["error"] == "RuntimeError: no Java"
    assert "error" not in found["http_client"]


def test_a_variant_that_is_no_result_is_told_and_the_code_says_so(
    measured: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, bench) == 0
    measured["chain"] = {
        **SECTIONS["chain"], "variants": {}, "failed": {"chain": "1 missing", "floor": "2 changed"},
    }  # fmt: skip
    assert run(monkeypatch, bench, "--only", "chain") == 1
    made = summary.markdown(sections(folder))
    assert "pass-through hops, chain | not measured: 1 missing |" in made
    assert "pass-through hops, floor | not measured: 2 changed |" in made


@pytest.mark.parametrize(
    ("words", "quick"),
    [(["--quick"], True), (["--rounds", "1"], True), ([], False), (["--rounds", "4"], False)],
)
def test_a_section_says_whether_it_was_quick_and_of_which_commit(
    measured: dict[str, Any],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    quick: bool,
) -> None:
    assert run(monkeypatch, bench, "--only", "chain", *words) == 0
    section = sections(folder)["chain"]
    assert section["quick"] is quick
    assert CLEAN.items() <= section.items()


def test_what_was_quick_is_never_published(
    measured: dict[str, Any],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line and no table: the README stays as it is. Nor what does not say."""
    readme = folder / "README.md"
    before = readme.read_text("utf-8")
    assert run(monkeypatch, bench) == 0
    assert run(monkeypatch, bench, "--only", "memory,latency", "--quick") == 0
    capsys.readouterr()
    assert run(monkeypatch, summary, "--write") == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "latency, memory" in line
    assert readme.read_text("utf-8") == before
    assert run(monkeypatch, summary) == 0
    assert "quick: latency, memory" in capsys.readouterr().out
    assert run(monkeypatch, bench) == 0
    document = sections(folder)
    del document["chain"]["quick"]
    (folder / "build" / "bench.json").write_text(json.dumps(document), "utf-8")
    assert run(monkeypatch, summary, "--write") == 1
    assert readme.read_text("utf-8") == before


def test_the_published_table_names_its_commit(
    measured: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, bench) == 0
    assert run(monkeypatch, summary, "--write") == 0
    text = (folder / "README.md").read_text("utf-8")
    assert "as it was" not in text
    assert "; commit a1b2c3d; " in text
    assert "quick" not in text
