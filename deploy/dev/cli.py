"""`assay up`: the whole oracle in one command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from assay.cli.evidence_access import TOKEN_VARIABLE
from assay.cli.stack import stack_file
from assay.topics import catalogue
from deploy.dev.data_folder import claimed
from deploy.dev.evidence_tokens import (
    ensure_evidence_tokens,
    leave_evidence_tokens,
    remove_evidence_tokens,
)
from deploy.dev.plan import BrokerChoice, ModelChoice, PlanError, StackPlan, aggregator_of
from deploy.dev.signing_key import ensure_dev_key
from deploy.dev.stack import Stack
from deploy.owned_process import ServerError


def up(
    broker: Annotated[
        str, typer.Option(help="embedded, kafka (started here), or HOST:PORT of a broker.")
    ] = "embedded",
    model: Annotated[
        str, typer.Option(help="simulator, ollama:NAME@URL or openai:NAME@URL.")
    ] = "simulator",
    data: Annotated[
        Path | None, typer.Option(help="Keep stores, key and logs here; default: keep nothing.")
    ] = None,
    aggregator: Annotated[
        str | None,
        typer.Option(
            envvar="ASSAY_INGEST__AGGREGATOR_URL",
            help="Aggregator URL with {address}; default: simulated data.",
        ),
    ] = None,
    processes: Annotated[
        Path | None, typer.Option(help="Folder of processes; default: those shipped.")
    ] = None,
    simulator: Annotated[
        list[str] | None,
        typer.Option(help="Option for the simulator, such as --simulator=--fault-rate=0.3."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One line on stdout once ready, nothing else.")
    ] = False,
) -> None:
    """Start all services and what they need; Ctrl-C ends them all.

    With --json the line is {"bootstrap","api","evidence","public_key","topics",…}. Exit codes:
    0 after Ctrl-C or SIGTERM, 1 when something did not start, 2 for options that cannot be meant.
    """
    with ExitStack() as stack:
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="assay-")))
        try:
            plan = StackPlan(
                broker=BrokerChoice.parse(broker),
                model=ModelChoice.parse(model),
                data=folder.resolve(),
                kept=data is not None,
                aggregator_url=aggregator_of(aggregator),
                processes=processes.resolve() if processes else None,
                simulator_options=tuple(simulator or ()),
            )
        except PlanError as error:
            print(f"assay up: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        try:
            stack.enter_context(claimed(plan.data))
            asyncio.run(_up(plan, as_json))
        except ServerError as error:
            print(f"assay up: {error}", file=sys.stderr)
            raise typer.Exit(1) from None


async def _up(plan: StackPlan, as_json: bool) -> None:
    console = Console(stderr=True, highlight=False)
    started = time.monotonic()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # The commands' variable; evidence would take it for a misspelt setting of its own.
    os.environ.pop(TOKEN_VARIABLE, None)
    tokens = ensure_evidence_tokens(plan.data, os.environ)
    plan = replace(plan, evidence_tokens=tokens)
    stack = Stack(plan, lambda text: console.print(text, style="yellow"))
    ensure_dev_key(plan.data / "signer.key")
    starting = asyncio.create_task(stack.start())

    def end() -> None:
        stop.set()
        starting.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    try:
        await starting
        addresses = stack.addresses(await asyncio.to_thread(_public_key, stack.address("signer")))
        leave_evidence_tokens(addresses["evidence"], tokens)
        _leave_addresses(addresses)
        if as_json:
            print(json.dumps(addresses), flush=True)
        else:
            Console(highlight=False).print(_table(plan, stack, addresses))
            took = time.monotonic() - started
            print(f"ready in {took:.1f} s; try: assay publish --wait deploy/dev/samples/*.json",
                  flush=True)  # fmt: skip
        await stack.watch(stop)
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    finally:
        remove_evidence_tokens()
        _remove_addresses()
        if not as_json:
            console.print("stopping")
        await stack.stop()
    if not as_json:
        console.print(f"stopped; kept in {plan.data}" if plan.kept else "stopped; nothing was kept")


def _public_key(signer: str) -> str:
    with urllib.request.urlopen(f"{signer}/public-key", timeout=10) as response:  # noqa: S310
        answer: dict[str, Any] = json.load(response)
    return str(answer["public_key"])


def _leave_addresses(addresses: dict[str, Any]) -> None:
    """Where `assay publish` and `assay tail` look for a running stack; the last one started."""
    file = stack_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(addresses), encoding="utf-8")
    fresh.replace(file)


def _remove_addresses() -> None:
    """Only our own: another stack may have been started after this one."""
    file = stack_file()
    with contextlib.suppress(OSError, ValueError):
        if json.loads(file.read_text(encoding="utf-8"))["pid"] == os.getpid():
            file.unlink()
            file.parent.rmdir()


def _table(plan: StackPlan, stack: Stack, addresses: dict[str, Any]) -> Table:
    table = Table(title="Assay")
    for heading in ("part", "where", "what it is", "kept"):
        table.add_column(heading)
    kept = f"yes, in {plan.data}" if plan.kept else "no"
    broker = {
        "embedded": ("simulated: librdkafka's mock cluster, about 5 MB per partition", "no"),
        "kafka": ("real: Apache Kafka, one node", kept),
        "external": ("real: yours", "by the broker"),
    }[plan.broker.kind]
    simulated = plan.model.kind == "simulator"
    model = "simulated: answers made from the features" if simulated else f"real: {plan.model.name}"
    data = "real: yours" if plan.aggregator_url else "simulated: made from the address"
    table.add_row("broker", addresses["bootstrap"], *broker)
    table.add_row("HTTP API", addresses["api"], "real: POST /score, GET /score, /docs", "")
    table.add_row("evidence", f"{addresses['evidence']}/evidence", "real: SQLite", kept)
    table.add_row("public key", addresses["public_key_url"], "real: secp256k1, a dev key", kept)
    table.add_row("ledger", "", "real: SQLite", kept)
    table.add_row("model", stack.model_url, model, "")
    table.add_row("wallet data", stack.aggregator_url, data, "")
    table.add_row("input topic", catalogue().topics[0].name, "publish here, from any language", "")
    table.add_row("output topic", "wallet.score.signed.v1", "signed scores", "")
    return table
