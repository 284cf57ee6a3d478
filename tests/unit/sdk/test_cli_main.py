"""The `assay` command itself: its version, and what it says without a command."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import stack
from assay.cli.main import build_app


def test_the_version_is_the_distributions() -> None:
    done = CliRunner().invoke(build_app(), ["--version"])
    assert (done.exit_code, done.output) == (0, f"assay {version('assay')}\n")


def test_without_a_command_it_shows_them() -> None:
    shown = CliRunner().invoke(build_app(), []).output
    assert "wallet events in" in shown
    for command in ("publish", "tail", "verify", "dlq", "up", "--version"):
        assert command in shown


def test_where_the_broker_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Option, environment, then the local port, which is said because nobody named it."""
    monkeypatch.setattr(stack, "stack_file", lambda: tmp_path / "stack.json")
    monkeypatch.setenv("ASSAY_KAFKA__BOOTSTRAP", "there:1")
    assert stack.default_bootstrap("here:2") == "here:2"
    assert stack.default_bootstrap(None) == "there:1"
    assert capsys.readouterr().err == ""
    monkeypatch.delenv("ASSAY_KAFKA__BOOTSTRAP")
    assert stack.default_bootstrap(None) == "127.0.0.1:9092"
    assert "no stack runs here" in capsys.readouterr().err
