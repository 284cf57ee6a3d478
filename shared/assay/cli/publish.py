"""`assay publish`: wallet records from files to the bus."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.failures import ending_cleanly
from assay.cli.publishing import Publishing
from assay.cli.record_files import read_records
from assay.cli.stack import Bootstrap, default_bootstrap

__all__ = ["publish", "read_records"]


def publish(
    files: Annotated[
        list[Path], typer.Argument(help="Wallet records, JSON or JSONL; - for standard input.")
    ],
    bootstrap: Bootstrap = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the signed scores.")] = False,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, help="With --wait: give up after so many seconds without news."),
    ] = 300,
    idempotent: Annotated[
        bool,
        typer.Option(
            "--idempotent", help="The same record again is the same request, not a new one."
        ),
    ] = False,
    tenant: Annotated[str, typer.Option(help="The input topic's tenant.")] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Publish wallet records and print their request ids; with --wait their signed scores.

    Exit codes: 0 all published (with --wait: all signed); 1 otherwise, with the reason per record;
    2 wrong usage; 130 interrupted.
    """
    address = default_bootstrap(bootstrap)
    run = Publishing(
        address,
        wait_s=timeout if wait else None,
        idempotent=idempotent,
        tenant=tenant,
        as_json=as_json,
    )
    with ending_cleanly("publish", pipe_code=1):
        try:
            complete = asyncio.run(run.run(files))
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    if not complete:
        raise typer.Exit(1)
