"""`assay revalidate`: stored answers under today's schemas and rules (SPEC S4.7)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.evidence_access import TOKEN_VARIABLE
from assay.cli.evidence_pages import EvidenceClient, EvidenceUnreadable
from assay.cli.printable import printable
from assay.contracts import schema_root
from assay_gate.cli.evidence_answers import stored_answers
from assay_gate.cli.lines import read_lines
from assay_gate.cli.rejudging import (
    CHANGES,
    BadRecord,
    Comparison,
    StoredAnswer,
    from_failure,
    rejudge,
)
from assay_gate.process import Process, load_process, load_processes
from assay_gate.verdict import GateError

_FAILURES = "_failures.jsonl"
_SAID = {
    "accepted": "rejected → accepted",
    "rejected": "accepted → rejected",
    "errors": "rejected for other reasons",
    "value": "accepted with another value",
}


def revalidate(
    process: Annotated[
        str, typer.Option(metavar="DIR_OR_ID", help="Process folder, or the id of a shipped one.")
    ],
    failures: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help="A {step}_failures.jsonl; may be repeated."),
    ] = None,
    more: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", exists=True, dir_okay=False, help="More of them."),
    ] = None,
    evidence: Annotated[
        str | None, typer.Option(metavar="URL", help="Address of the evidence service.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="With --evidence: ISO 8601 time, or ms since 1970.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar=[TOKEN_VARIABLE, "ASSAY_EVIDENCE__FULL_TEXT_TOKEN"],
            help="With --evidence: its full-text token; default: that of a stack started here.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, the summary last.")
    ] = False,
) -> None:
    """Judge stored raw answers by today's schemas and rules and print what would change.

    No model is asked and nothing is written. Answers come from failure records, which are judged
    at the step that their file's name or `_metadata.step` says, or from evidence, where verdicts
    are compared attempt by attempt; its full text is needed, for a redacted answer is another
    answer. Answers that were cut off or never came cannot be judged.

    Exit codes: 0 nothing would change; 1 something would; 2 wrong usage, which includes a process
    or record that cannot be read.
    """
    files = [*(failures or ()), *(more or ())]
    if bool(files) == bool(evidence):
        raise typer.BadParameter("give --failures FILE… or --evidence URL", param_hint="--failures")
    if since and not evidence:
        raise typer.BadParameter("only evidence has times", param_hint="--since")
    loaded = _process(process)
    counts: Counter[str] = Counter()
    try:
        if evidence:
            client = EvidenceClient(evidence, token)
            answers = stored_answers(partial(client.items, since=since, full=True), loaded.id)
        else:
            answers = _in_files(files)
        for answer in answers:
            found = rejudge(loaded, answer)
            counts[found.change] += 1
            if found.change in CHANGES:
                print(json.dumps(found.to_json()) if as_json else _readable(found))
        if evidence and not counts:
            reason = f"evidence keeps no answer of a process {loaded.id!r}; a folder is of the "
            reason += "process that assay.id names, else its name up to an @"
            print(f"assay revalidate: {reason}", file=sys.stderr)
        _say_summary(counts, loaded, as_json=as_json)
        sys.stdout.flush()
    except (EvidenceUnreadable, BadRecord) as error:
        print(f"assay revalidate: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise typer.Exit(1) from None
    raise typer.Exit(1 if any(counts[change] for change in CHANGES) else 0)


def _process(given: str) -> Process:
    try:
        if Path(given).is_dir():
            return load_process(given)
        shipped = load_processes(schema_root() / "processes")
    except GateError as error:
        raise typer.BadParameter(str(error), param_hint="--process") from None
    if given not in shipped:
        known = ", ".join(sorted(shipped))
        reason = f"{given!r} is no folder, and no shipped process ({known})"
        raise typer.BadParameter(reason, param_hint="--process")
    return shipped[given]


def _in_files(files: list[Path]) -> Iterator[StoredAnswer]:
    for file in files:
        name = file.name.removesuffix(".bak")
        step = name.removesuffix(_FAILURES) if name.endswith(_FAILURES) else None
        with file.open("rb") as source:
            for number, (line, fault) in enumerate(read_lines(source), 1):
                try:
                    if fault is not None:
                        raise BadRecord(fault)
                    yield from_failure(line, step)
                except BadRecord as bad:
                    raise BadRecord(f"{file}: record {number}: {bad}") from None


def _readable(found: Comparison) -> str:
    answer = found.answer
    who = answer.unit_id or answer.request_id or "-"
    head = f"{who}  step {found.step}: {_SAID[found.change]}"
    errors = found.now.errors if found.now is not None else []
    return "\n".join(
        map(printable, [head, *(f"    {e['path']} {e['rule']}: {e['message']}" for e in errors)])
    )


def _say_summary(counts: Counter[str], process: Process, *, as_json: bool) -> None:
    total = sum(counts.values())
    if as_json:
        named = {
            change: counts[change] for change in (*CHANGES, "none", "not_judged", "no_verdict")
        }
        version = {"process": process.id, "version": process.version, "hash": process.hash}
        print(json.dumps({"summary": {**version, "answers": total, **named}}))
        return
    parts = [f"{counts[change]} {said}" for change, said in _SAID.items() if counts[change]]
    parts.append(f"{counts['none']} unchanged")
    if counts["not_judged"]:
        parts.append(f"{counts['not_judged']} cannot be judged")
    if counts["no_verdict"]:
        parts.append(f"{counts['no_verdict']} without a recorded verdict")
    print(f"{total} answers under {process.id} {process.version}: {', '.join(parts)}")
