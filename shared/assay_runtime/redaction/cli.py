"""`assay redact`: redaction as a filter over JSON lines."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

from assay_gate.cli.lines import Progress, read_lines, write_line
from assay_runtime.redaction.finder import find, replaced


class BadLine(ValueError):
    """A line that is no unit; the message repeats nothing of it."""


def redact() -> None:
    """Replace personal data in JSON lines {"id", "text"} from stdin.

    Writes {"id", "text", "spans"} for each line, in order: `text` is redacted ([EMAIL], [PHONE],
    [CARD], [SSN], [IN_AADHAAR], [IN_PAN], [UK_NINO], [IBAN], [IP]); `spans` are start, end, type
    over the text that came IN, counted in code points, end exclusive. Other keys are left out.

    Wallets, hashes, UUIDs, times, amounts and versions stay. Names, street addresses and dates of
    birth are NOT covered. Nothing is written for a bad line but an error on stderr, which repeats
    nothing of it. Runs in constant memory; a line may have 8,000,000 bytes.

    Exit codes: 0 every line was redacted; 1 at least one could not be read; 2 wrong usage.
    """
    progress = Progress()
    try:
        for number, (line, fault) in enumerate(read_lines(sys.stdin.buffer), 1):
            try:
                write_line(sys.stdout.buffer, _redacted(line, fault))
            except BadLine as error:
                print(f"assay redact: record {number}: {error}", file=sys.stderr)
                progress.count(passed=False)
            else:
                progress.count(passed=True)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        sys.stderr.close()
        raise typer.Exit(1) from None
    raise typer.Exit(progress.finish())


def _redacted(line: str, fault: str | None) -> dict[str, Any]:
    if fault is not None:
        raise BadLine(fault)
    try:
        unit = json.loads(line)
    except (ValueError, RecursionError):
        raise BadLine("no JSON") from None
    if not isinstance(unit, dict):
        raise BadLine("no JSON object")
    identity, text = unit.get("id"), unit.get("text")
    if not isinstance(identity, str | int) or isinstance(identity, bool):
        raise BadLine("`id` must be a text or a whole number")
    if not isinstance(text, str):
        raise BadLine("`text` must be a text")
    spans = find(text)
    return {"id": identity, "text": replaced(text, spans), "spans": spans}
