"""`assay tail`: signed scores as they come."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated, Literal

import typer

from assay.cli.failures import ending_cleanly
from assay.cli.stack import Bootstrap, default_bootstrap
from assay.client import Outcomes


def tail(
    bootstrap: Bootstrap = None,
    start: Annotated[
        Literal["earliest", "latest"], typer.Option("--from", help="Where to begin.")
    ] = "latest",
    count: Annotated[int | None, typer.Option(min=1, help="End after so many scores.")] = None,
    timeout: Annotated[float | None, typer.Option(min=0, help="End after so many seconds.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print signed scores.

    Exit codes: 0 after --count scores, or after --timeout when no --count was given, or when
    interrupted; 1 when fewer than --count came in time or the broker cannot be read; 2 wrong usage.
    """
    address = default_bootstrap(bootstrap)
    with ending_cleanly("tail", pipe_code=0):
        try:
            seen = asyncio.run(_tail(address, start, count, timeout, as_json))
        except KeyboardInterrupt:
            raise typer.Exit(0) from None
    if count is not None and seen < count:
        print(f"assay tail: {seen} of {count} scores within {timeout:g} s", file=sys.stderr)
        raise typer.Exit(1)


async def _tail(
    bootstrap: str,
    start: Literal["earliest", "latest"],
    count: int | None,
    timeout: float | None,  # noqa: ASYNC109 - the command's own option
    as_json: bool,
) -> int:
    seen = 0
    try:
        async with asyncio.timeout(timeout):
            async with Outcomes(bootstrap, start=start, scores_only=True) as outcomes:
                async for outcome in outcomes:
                    if outcome.score is None:
                        continue
                    print(json.dumps(outcome.score) if as_json else line(outcome.score), flush=True)
                    seen += 1
                    if seen == count:
                        break
    except TimeoutError:
        pass
    return seen


def line(score: dict[str, object]) -> str:
    """One readable line per signed score."""
    metadata = score["metadata"]
    fallback = metadata.get("fallback") if isinstance(metadata, dict) else None
    note = f"  fallback: {fallback}" if fallback else ""
    return f"{score['wallet_address']}  {score['score']:>4}  {score['request_id']}{note}"
