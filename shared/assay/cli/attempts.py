"""`assay attempts`: what the model was asked and what it said, attempt by attempt (SPEC S5.5)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from assay.cli.evidence_access import TOKEN_VARIABLE, EvidenceUrl, evidence_address
from assay.cli.evidence_pages import EvidenceClient
from assay.cli.failures import ending_cleanly
from assay.cli.printable import printable

_PROMPT_SHOWN = 600


def attempts(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="As in every answer.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, with every field.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Without redaction; needs the full-text token.")
    ] = False,
    evidence: EvidenceUrl = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar=[TOKEN_VARIABLE, "ASSAY_EVIDENCE__FULL_TEXT_TOKEN", "ASSAY_EVIDENCE__TOKEN"],
            help="Its bearer token; default: that of a stack started here.",
        ),
    ] = None,
) -> None:
    """Print a record for each model attempt of a request: prompt, raw answer, verdict, errors,
    duration, tokens, model and the hashes of process, prompt and schema.

    Personal data is redacted unless --full is given; names and street addresses are not
    recognised. Prompts are cut unless --json is given.

    Exit codes: 0 printed; 1 there is no attempt, or evidence cannot be read; 2 wrong usage.
    """
    address = evidence_address(evidence)
    found = False
    with ending_cleanly("attempts", pipe_code=0):
        for record in EvidenceClient(address, token).attempts(request_id, full=full):
            found = True
            print(json.dumps(record) if as_json else "\n".join(_lines(record)), flush=True)
    if not found:
        print(f"assay attempts: no attempt of {printable(request_id)} is kept", file=sys.stderr)
        raise typer.Exit(1)


def _lines(record: dict[str, Any]) -> Iterator[str]:
    if "erased" in record:
        gone = record["erased"]
        yield f"erased  {_of(gone, 'reason')} ({_of(gone, 'actor')})\n"
        return
    if record.get("unreadable"):
        yield f"unreadable  {_text(record['event_id'])}\n"
        return
    marks = "".join(f"  {mark}" for mark in ("shadow", "unsealed") if record.get(mark))
    yield (
        f"attempt {_text(record['attempt'])}  step {_text(record['step'])}  "
        f"{_text(record['process_id'])} {_text(record['process_version'])}{marks}"
    )
    yield f"  verdict   {_verdict(record)}"
    for error in record["errors"]:
        yield f"            {_of(error, 'path')} {_of(error, 'rule')}: {_of(error, 'message')}"
    if record["error"]:
        yield f"  fault     {_of(record['error'], 'code')}: {_of(record['error'], 'message')}"
    yield f"  duration  {_duration(record)}{_tokens(record)}"
    yield (
        f"  model     {_text(record['provider'])} {_text(record['model'])} "
        f"{_text(record['model_digest'])[:12]}  temperature {_text(record['temperature'])}  "
        f"seed {_text(record['seed'])}"
    )
    yield (
        f"  hashes    process {_text(record['process_hash'])[:12]}  "
        f"prompt {_text(record['prompt_sha256'])[:12]}  "
        f"schema {_text(record['schema_sha256'])[:12]}"
    )
    prompt = str(record["prompt"])
    cut = f"… of {len(prompt):,} characters" if len(prompt) > _PROMPT_SHOWN else ""
    yield f"  prompt    {_indented(prompt[:_PROMPT_SHOWN])}{cut}"
    raw = record["raw_answer"]
    yield f"  answer    {'none' if raw is None else _indented(str(raw))}\n"


def _verdict(record: dict[str, Any]) -> str:
    if record["validation_success"] is None:
        return "not yet"
    if record["validation_success"]:
        return "accepted"
    parsed = "" if record["parse_success"] else ", not parsed"
    return f"rejected at {_text(record['failure_stage'])}{parsed}"


def _duration(record: dict[str, Any]) -> str:
    if record["served_from"]:
        return f"none: served again from {_text(record['served_from'])}"
    known = record["duration_ms"]
    return "unknown" if known is None else f"{known:,.0f} ms"


def _tokens(record: dict[str, Any]) -> str:
    counts = ", ".join(f"{_text(name)} {_text(n)}" for name, n in record["tokens"].items())
    return f"  ({counts})" if counts else ""


def _indented(text: str) -> str:
    return printable(text, lines=True).replace("\n", "\n            ")


def _of(value: object, name: str) -> str:
    return _text(value.get(name)) if isinstance(value, dict) else _text(value)


def _text(value: object) -> str:
    return "-" if value is None else printable(value)
