"""`assay process`: `check` says what is wrong with a folder before anything runs, `compare` how
two versions fared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_gate.cli.compare import compare
from assay_gate.process_check import Checked, check_processes
from assay_gate.process_findings import Finding

app = typer.Typer(no_args_is_help=True, help="Look at processes.")


@app.callback()
def process() -> None:
    """Look at processes."""


app.command()(compare)


@app.command()
def check(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", exists=True, file_okay=False,
            help="A process folder (with config.yaml), or a folder of them.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:  # fmt: skip
    """Check process folders: sections, links, templates, schemas, expressions and rules.

    Names every mistake with its file and key, all in one run; keys of other systems that have no
    effect here are warnings. Asks no model and starts no service.

    Exit codes: 0 no mistake (there may be warnings); 1 mistakes; 2 wrong usage.
    """
    checked = check_processes(folder)
    if not checked:
        print(f"assay process check: no config.yaml in {folder} or below it", file=sys.stderr)
        raise typer.Exit(2)
    if as_json:
        print(json.dumps({"processes": [_as_json(result) for result in checked]}, indent=2))
    else:
        for result in checked:
            _show(result)
    raise typer.Exit(1 if any(result.mistakes for result in checked) else 0)


def _show(result: Checked) -> None:
    for finding in [*result.mistakes, *result.warnings]:
        print(f"{finding.level}: {result.folder.name}/{finding}")
    mistakes, warnings = len(result.mistakes), len(result.warnings)
    known = result.process
    name = f"{known.id} {known.version}" if known else result.folder.name
    verdict = "ok" if not mistakes else f"{mistakes} mistake{'s' if mistakes > 1 else ''}"
    warned = f", {warnings} warning{'s' if warnings > 1 else ''}" if warnings else ""
    print(f"{name}: {verdict}{warned}")


def _as_json(result: Checked) -> dict[str, Any]:
    known = result.process
    return {
        "folder": str(result.folder),
        "id": known.id if known else None,
        "version": known.version if known else None,
        "hash": known.hash if known else None,
        "mistakes": [_finding(finding) for finding in result.mistakes],
        "warnings": [_finding(finding) for finding in result.warnings],
    }


def _finding(finding: Finding) -> dict[str, str]:
    return {"file": finding.file, "key": finding.key, "message": finding.message}
