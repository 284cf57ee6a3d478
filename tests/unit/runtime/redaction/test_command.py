"""`assay redact` as a pipe filter (SPEC S5.5)."""

from __future__ import annotations

import json
from typing import Any

import typer
from typer.testing import CliRunner

from assay_runtime.redaction.cli import redact

APP = typer.Typer()
APP.command()(redact)


def _run(lines: bytes) -> tuple[int, list[dict[str, Any]], str]:
    result = CliRunner().invoke(APP, input=lines)
    return (
        result.exit_code,
        [json.loads(line) for line in result.stdout.splitlines()],
        result.stderr,
    )


def test_text_is_redacted_and_spans_are_those_of_the_input() -> None:
    """S5.5: one line out for each line in, in order; other keys do not pass."""
    code, units, _ = _run(
        b'{"id":"a","text":"mail a@b.example","name":"x"}\n{"id":2,"text":"block 21034567"}\n'
    )
    assert code == 0
    assert units == [
        {"id": "a", "text": "mail [EMAIL]", "spans": [[5, 16, "EMAIL"]]},
        {"id": 2, "text": "block 21034567", "spans": []},
    ]


def test_bad_lines_are_told_without_their_text_and_the_rest_goes_on() -> None:
    """S5.5: exit 1 at the end; the error names the record and repeats nothing of it."""
    code, units, told = _run(
        b"secret a@b.example\n"
        b'["secret"]\n{"id":"x"}\n{"text":"secret"}\n{"id":true,"text":"secret"}\n\xff secret\n'
        b'\n{"id":"ok","text":"fine"}\n'
    )
    assert code == 1
    assert [unit["id"] for unit in units] == ["ok"]
    assert [f"record {number}:" in told for number in range(1, 7)] == [True] * 6
    assert "secret" not in told
    assert "example" not in told


def test_lone_surrogates_and_line_separators_pass() -> None:
    """S5.5: whatever JSON can carry comes out as one line of JSON."""
    code, units, _ = _run(b'{"id":"s","text":"\\ud800 \\u2028 a@b.example"}\n')
    assert code == 0
    assert units[0]["text"] == "\ud800 \u2028 [EMAIL]"


def test_help_says_what_is_not_covered() -> None:
    """S5.5: nobody takes it for more than it is."""
    shown = " ".join(CliRunner().invoke(APP, ["--help"]).stdout.split())
    assert "Names, street addresses" in shown
    assert "NOT covered" in shown
    assert "start, end, type over the text that came IN" in shown
    assert "code points" in shown
