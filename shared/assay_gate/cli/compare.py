"""`assay process compare`: two versions of a process side by side, from evidence."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from assay.cli.evidence_access import TOKEN_VARIABLE, EvidenceUrl, evidence_address
from assay.cli.evidence_pages import EvidenceClient
from assay.cli.failures import ending_cleanly
from assay.cli.printable import printable
from assay.cli.request_table import Attempt, Ending, RequestTable
from assay_gate.cli.compare_numbers import delta_numbers, histogram_edges, version_numbers
from assay_gate.cli.compare_reading import Seen, Side, facts
from assay_gate.cli.compare_report import report

_AT_ONCE = 1_000
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,6}")


def compare(
    first: Annotated[str, typer.Argument(metavar="V1", help="VERSION or ID@VERSION.")],
    second: Annotated[str, typer.Argument(metavar="V2", help="VERSION or ID@VERSION.")],
    process: Annotated[
        str | None, typer.Option(metavar="ID", help="Process; needed if several have V1 or V2.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="ISO 8601 time, or ms since 1970; default: everything.")
    ] = None,
    field: Annotated[
        str, typer.Option(help="The member of the output that is the score.")
    ] = "score",
    evidence: EvidenceUrl = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar=[TOKEN_VARIABLE, "ASSAY_EVIDENCE__TOKEN", "ASSAY_EVIDENCE__FULL_TEXT_TOKEN"],
            help="Its bearer token; default: that of a stack started here.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:  # fmt: skip
    """Compare two versions of a process by what evidence keeps of them, shadows included.

    Prints for each version requests, how they ended (with the 95 % interval of each rate), retries,
    attempts and the distribution of scores; then by how much the scores differ, second minus
    first, for requests that both accepted and for wallets that both scored last. Fallback scores
    are counted, and are in no distribution and no delta. Reads redacted pages; holds requests in
    a temporary file, not in memory.

    Exit codes: 0 compared; 1 a version has no request, or evidence cannot be read; 2 wrong usage.
    """
    if not _FIELD.fullmatch(field):
        raise typer.BadParameter(f"{field!r} is no name such as score", param_hint="--field")
    sides = (Side.parse(first, process), Side.parse(second, process))
    if sides[0] == sides[1]:
        raise typer.BadParameter("V1 and V2 are the same", param_hint="V2")
    address = evidence_address(evidence)
    seen = Seen()
    with ending_cleanly("process compare", pipe_code=0), RequestTable() as table:
        client = EvidenceClient(address, token)

        def items(kind: str, members: list[str]) -> Iterator[dict[str, Any]]:
            return client.items(kind, since=since, fields=members)

        found = facts(items, sides, field, seen)
        while some := list(itertools.islice(found, _AT_ONCE)):
            table.add_attempts(fact for fact in some if isinstance(fact, Attempt))
            table.add_endings(fact for fact in some if isinstance(fact, Ending))
        named = tuple(_named(side, processes) for side, processes in
                      zip(sides, seen.processes, strict=True))  # fmt: skip
        table.close_books()
        edges = histogram_edges(table)
        versions = [
            {"process": side.process_id, "version": side.version,
             **version_numbers(table, number, edges)}
            for number, side in enumerate(named)
        ]  # fmt: skip
        result = {
            "versions": versions,
            "delta": {
                "by_request": delta_numbers(table, "deltas"),
                "by_wallet": delta_numbers(table, "wallet_deltas"),
            },
            "since": since,
            "erased_events": seen.erased,
        }
        print(json.dumps(result) if as_json else report(result))
    empty = [str(side) for side, numbers in zip(named, versions, strict=True)
             if not numbers["requests"]]  # fmt: skip
    if empty:
        print(f"assay process compare: no request of {printable(', '.join(empty))} is kept",
              file=sys.stderr)  # fmt: skip
        raise typer.Exit(1)


def _named(side: Side, processes: set[str]) -> Side:
    """The side with its process; several cannot be one."""
    if side.process_id is not None or not processes:
        return side
    if len(processes) > 1:
        ids = printable(", ".join(sorted(processes)))
        raise typer.BadParameter(
            f"version {printable(side.version)} is one of several processes: {ids}; name one with "
            "--process, or as ID@VERSION",
            param_hint="--process",
        )
    return Side(side.version, next(iter(processes)))
