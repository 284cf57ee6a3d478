"""Host of the `assay` command: its own subcommands, and those of installed distributions."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points, version
from typing import Annotated

import typer

from assay.cli.dlq import dlq
from assay.cli.publish import publish
from assay.cli.tail import tail
from assay.cli.verify import verify
from assay.errors import AssayError

COMMAND_GROUP = "assay.commands"


def build_app() -> typer.Typer:
    """The command with every subcommand that is installed."""
    app = typer.Typer(
        name="assay",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        callback=_options,
    )
    for command in (publish, tail, verify):
        app.command()(command)
    app.add_typer(dlq, name="dlq")
    for point in sorted(entry_points(group=COMMAND_GROUP), key=lambda p: p.name):
        loaded = point.load()
        if isinstance(loaded, typer.Typer):
            app.add_typer(loaded, name=point.name)
        else:
            app.command(name=point.name)(loaded)
    return app


def _show_version(asked: bool) -> None:
    if asked:
        print(f"assay {version('assay')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Assay: wallet events in, checked and signed reputation scores out."""


def main() -> None:
    """Exit codes: 0 done, 1 the work failed, 2 wrong usage, 130 interrupted."""
    try:
        build_app()()
    except AssayError as error:
        print(f"assay: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
