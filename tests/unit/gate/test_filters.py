"""`assay validate schema`, `assay validate rules`, `assay gate judge` as pipes (S4.11)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MAIN = (
    "import typer; from assay_gate.cli import judge, validate; app = typer.Typer();"
    "app.add_typer(validate.app, name='validate'); app.add_typer(judge.app, name='gate'); app()"
)
SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}


def run(*arguments: str, stdin: str | bytes) -> tuple[int, list[Any], list[Any]]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments], input=data, capture_output=True, timeout=120
    )
    out, err = done.stdout.splitlines(), done.stderr.splitlines()
    return done.returncode, [json.loads(x) for x in out], [json.loads(x) for x in err]


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA), encoding="utf-8")
    return str(file)


@pytest.fixture
def config_file(tmp_path: Path) -> str:
    file = tmp_path / "config.yaml"
    file.write_text(
        "validation:\n  rate:\n    required: [score]\n    rules:\n"
        "      - {name: low, expr: 'score > 3', error: 'only {score}', level: error}\n"
        "  empty:\n",
        encoding="utf-8",
    )
    return str(file)


def test_schema_filter_splits_units(schema_file: str, tmp_path: Path) -> None:
    """S4.11: valid units on stdout with every field, failure records (S4.5) on stderr."""
    lines = [
        {"unit_id": "a", "score": "5", "other": [1], "_metadata": {"n": 1}},
        {"unit_id": "b", "score": "high", "_metadata": {"retry_count": 2}},
        {"score": 1},
        {"unit_id": "c", "response": '```json\n{"score": 3}\n```'},
    ]
    log = tmp_path / "log.txt"
    text = "\n\n".join(map(json.dumps, lines)) + "\nnot json\n" + '{"unit_id": "d", "score": 4,}'
    code, valid, failed = run(
        "validate", "schema", "--schema", schema_file, "--log", str(log), stdin=text
    )
    assert code == 1
    assert valid == [
        {"unit_id": "a", "score": 5, "other": [1], "_metadata": {"n": 1}},
        {"unit_id": "c", "score": 3},
        {"unit_id": "d", "score": 4},
    ]
    assert [record["unit_id"] for record in failed] == ["b", None, None]
    assert failed[0] == {
        "unit_id": "b", "failure_stage": "schema_validation", "input": lines[1],
        "raw_response": json.dumps(lines[1]), "retry_count": 2,
        "errors": [
            {"path": "$.score", "rule": "type", "message": 'must be integer, got string "high"'}
        ],
    }  # fmt: skip
    assert failed[1]["errors"][0]["path"] == "$.unit_id"
    assert failed[2]["failure_stage"] == "pipeline_internal"
    assert 'a [COERCE] $.score: "5" → 5 (string → int)' in log.read_text(encoding="utf-8")


def test_exit_code_is_zero_only_if_all_passed(schema_file: str, config_file: str) -> None:
    """S4.11: for both phases."""
    good, bad = '{"unit_id": 1, "score": 5}\n', '{"unit_id": 2, "score": 1.5}\n'
    for arguments in (
        ("validate", "schema", "--schema", schema_file),
        ("validate", "rules", "--config", config_file, "--step", "rate"),
    ):
        assert run(*arguments, stdin=good)[0] == 0
        assert run(*arguments, stdin=good + bad)[0] == 1


def test_rules_filter_splits_units(config_file: str) -> None:
    """S4.11: phase 2 leaves units unchanged and names the broken rule."""
    text = '{"unit_id": "a", "score": 5}\n{"unit_id": "b", "score": 2}\n'
    code, valid, failed = run(
        "validate", "rules", "--config", config_file, "--step", "rate", stdin=text
    )
    assert code == 1
    assert valid == [{"unit_id": "a", "score": 5}]
    assert failed[0]["failure_stage"] == "validation"
    assert failed[0]["errors"] == [{"path": "$", "rule": "low", "message": "only 2"}]
    code, valid, _ = run(
        "validate", "rules", "--config", config_file, "--step", "empty", stdin=text
    )
    assert (code, len(valid)) == (0, 2)


@pytest.mark.parametrize(
    "bad", [b'{"unit_id": "\xff"}\n', b'{"unit_id": "' + b"x" * 9_000_000 + b'"}\n']
)
def test_a_bad_line_does_not_stop_the_next(schema_file: str, bad: bytes) -> None:
    """X.5: lines that are no UTF-8 or too long are failures of their own."""
    text = bad + b'{"unit_id": "z", "score": 1}\n'
    code, valid, failed = run("validate", "schema", "--schema", schema_file, stdin=text)
    assert code == 1
    assert [unit["unit_id"] for unit in valid] == ["z"]
    assert [record["failure_stage"] for record in failed] == ["pipeline_internal"]


def test_unusable_settings_exit_with_two(config_file: str, tmp_path: Path) -> None:
    """A wrong schema or step is told apart from failing units."""
    broken = tmp_path / "broken.json"
    broken.write_text('{"type": "intger"}', encoding="utf-8")
    for arguments in (
        ("validate", "schema", "--schema", str(broken)),
        ("validate", "rules", "--config", config_file, "--step", "nope"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *arguments], input=b"", capture_output=True, timeout=60
        )
        assert done.returncode == 2
        assert b"assay validate: " in done.stderr


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_stays_constant(schema_file: str, tmp_path: Path) -> None:
    """S4.11: ten times the units take no more memory."""
    main = MAIN.removesuffix(" app()") + (
        "\nimport sys\ntry: app()\nfinally: print("
        "open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr)"
    )
    line = json.dumps({"unit_id": "u", "score": 1, "pad": "x" * 1000}).encode() + b"\n"
    peaks = []
    for units in (3_000, 30_000):
        source = tmp_path / f"{units}.jsonl"
        source.write_bytes(line * units)
        with source.open("rb") as stdin:
            done = subprocess.run(
                [sys.executable, "-c", main, "validate", "schema", "--schema", schema_file],
                stdin=stdin, capture_output=True, timeout=120,
            )  # fmt: skip
        assert done.returncode == 0
        assert done.stdout.count(b"\n") == units
        peaks.append(int(done.stderr))
    assert peaks[1] - peaks[0] < 4_000


def test_judge_answers_in_order() -> None:
    """Issue item 5: one line out for each line in, with ids, rules and context."""
    requests: list[Any] = [
        {"id": 1, "raw": 'Sure: {"score": "5"}', "schema": SCHEMA},
        {"id": "two", "raw": '{"score": 5', "schema": SCHEMA},
        {"id": 3, "raw": '{"score": 5}', "schema": SCHEMA, "context": {"cap": 4},
         "rules": {"rules": [{"name": "cap", "expr": "score <= cap"}]}},
        {"id": 4, "raw": "[1]", "schema": None},
        {"id": 5, "raw": "1", "schema": {"type": "intger"}},
        {"id": 6},
        "no object",
    ]  # fmt: skip
    text = "\n".join(map(json.dumps, requests)) + "\n{"
    code, out, err = run("gate", "judge", stdin=text)
    assert code == 1
    assert err == []
    assert [line["id"] for line in out] == [1, "two", 3, 4, 5, 6, None, None]
    assert [line["accepted"] for line in out] == [
        True,
        False,
        False,
        True,
        False,
        False,
        False,
        False,
    ]
    assert set(out[0]) == {"id", "accepted", "value", "stage", "errors", "repairs"}
    assert set(out[1]) == {"id", "accepted", "stage", "errors", "repairs"}
    assert out[0]["value"] == {"score": 5}
    assert out[2]["stage"] == "validation"
    assert run("gate", "judge", stdin=json.dumps(requests[3]))[0] == 0


@pytest.mark.parametrize(
    "command", [("validate", "schema"), ("validate", "rules"), ("gate", "judge")]
)
def test_help_says_what_the_exit_codes_mean(command: tuple[str, str]) -> None:
    """S4.11: documented where people look."""
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *command, "--help"], capture_output=True, text=True, timeout=60
    )
    assert "Exit codes: 0" in done.stdout
    assert "onstant memory" in " ".join(done.stdout.split())
