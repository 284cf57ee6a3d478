"""The `assay` command itself: its version, and what it says without a command."""

from __future__ import annotations

from importlib.metadata import version

from typer.testing import CliRunner

from assay.cli.main import build_app


def test_the_version_is_the_distributions() -> None:
    done = CliRunner().invoke(build_app(), ["--version"])
    assert (done.exit_code, done.output) == (0, f"assay {version('assay')}\n")


def test_without_a_command_it_shows_them() -> None:
    shown = CliRunner().invoke(build_app(), []).output
    assert "wallet events in" in shown
    for command in ("publish", "tail", "verify", "dlq", "up", "--version"):
        assert command in shown
