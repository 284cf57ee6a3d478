"""`assay demo`: sample wallets through all services, each score shown and verified offline."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.panel import Panel

from assay.cli.record_files import read_records
from assay.client import Outcome, Outcomes, WalletPublisher
from assay.submission import submission_from_record
from deploy.dev.plan import BrokerChoice, ModelChoice, StackPlan
from deploy.dev.signing_key import ensure_dev_key
from deploy.dev.stack import Stack
from deploy.owned_process import ServerError

SAMPLES = Path(__file__).with_name("samples")
_PATIENCE_S = 120.0


def demo() -> None:
    """Score the sample wallets on an embedded stack and verify every signature.

    Exit codes: 0 when every wallet got a score whose signature verifies, 1 otherwise.
    """
    try:
        good = asyncio.run(_demo())
    except ServerError as error:
        print(f"assay demo: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    if not good:
        raise typer.Exit(1)


async def _demo() -> bool:
    console = Console(highlight=False)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="assay-demo-") as folder:
        data = Path(folder)
        ensure_dev_key(data / "signer.key")
        plan = StackPlan(
            broker=BrokerChoice.parse("embedded"),
            model=ModelChoice.parse("simulator"),
            data=data,
            kept=False,
            simulator_options=("--profile", "demo"),
        )
        stack = Stack(plan, console.print)
        console.print("Starting broker (simulated), model (simulated) and six services …")
        try:
            await stack.start()
            console.print(f"Ready after {time.monotonic() - started:.1f} s.\n")
            outcomes = await _score(stack.bootstrap, console)
            public_key = _public_key_of(outcomes)
        finally:
            await stack.stop()
        verified = _verify(outcomes, public_key, data, console)
    console.print("\nNext: [bold].venv/bin/assay up[/bold] keeps a stack running.")
    return verified


async def _score(bootstrap: str, console: Console) -> list[Outcome]:
    files = sorted(SAMPLES.glob("*.json"))
    names: dict[str, str] = {}
    ended: list[Outcome] = []
    async with Outcomes(bootstrap) as outcomes, WalletPublisher(bootstrap) as publisher:
        for file in files:
            for _, record in read_records(file):
                request = await publisher.publish(submission_from_record(record))
                names[request] = file.stem
        console.print(f"Published {len(names)} wallets to wallet.event.submitted.v1.\n")
        async with asyncio.timeout(_PATIENCE_S):
            async for outcome in outcomes:
                if outcome.request_id in names:
                    ended.append(outcome)
                    console.print(_panel(names[outcome.request_id], outcome))
                if len(ended) == len(names):
                    break
    return ended


def _panel(name: str, outcome: Outcome) -> Panel:
    score = outcome.score
    if score is None:
        return Panel(f"{outcome.status}: {outcome.reason}", title=name, title_align="left")
    meta: dict[str, Any] = score["metadata"]
    breakdown = "  ".join(f"{part} {value}" for part, value in meta["scoreBreakdown"].items())
    if meta["fallback"]:
        how = f"fallback, not the model's: {meta['fallback']}"
    elif meta["attempts"] > 1:
        how = f"accepted at attempt {meta['attempts']}; the gate rejected what came before"
    else:
        how = "accepted at the first attempt"
    text = (
        f"[bold]{score['score']}[/bold] of 1000   {breakdown}\n{meta['reasoning']}\n"
        f"risks: {', '.join(meta['risk_factors']) or 'none named'}\n"
        f"strengths: {', '.join(meta['strengths']) or 'none named'}\n"
        f"{how}; model: {meta['model']}\nsignature {score['signature'][:32]}…"
    )
    return Panel(text, title=f"{name}  {score['wallet_address']}", title_align="left")


def _public_key_of(outcomes: list[Outcome]) -> str:
    keys = {outcome.score["public_key"] for outcome in outcomes if outcome.score}
    return keys.pop() if len(keys) == 1 else ""


def _verify(outcomes: list[Outcome], public_key: str, data: Path, console: Console) -> bool:
    """With `assay verify` itself, the stack being down: offline."""
    scores = [outcome.score for outcome in outcomes if outcome.score]
    file = data / "scores.jsonl"
    file.write_text("".join(json.dumps(score) + "\n" for score in scores), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "assay", "verify", "--public-key", public_key, str(file), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    valid = sum(json.loads(line)["valid"] for line in run.stdout.splitlines())
    console.print(f"\nVerified offline: {valid} of {len(outcomes)} signatures, key {public_key}")
    return run.returncode == 0 and valid == len(outcomes)
