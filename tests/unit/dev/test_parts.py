"""Parts of a stack that end are started again where they were (issue 3 item 5)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.dev.parts import Parts
from deploy.dev.plan import SERVICES, BrokerChoice, ModelChoice, StackPlan
from deploy.dev.stack import Stack

SHOWS_ITS_SETTINGS = (
    "import json, os, time\n"
    "print(json.dumps({n: v for n, v in os.environ.items() if n.startswith('ASSAY_')}), flush=True)"
    "\ntime.sleep(60)"
)


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    plan = StackPlan(
        BrokerChoice.parse("embedded"), ModelChoice.parse("simulator"), tmp_path, kept=False
    )
    made = Stack(plan, lambda text: None)
    yield made
    await made.stop()


def _models(url: str) -> bytes:
    with urllib.request.urlopen(f"{url}/api/tags", timeout=5) as answer:
        found: bytes = answer.read()
    return found


async def test_a_killed_simulator_comes_back_where_it_was(stack: Stack) -> None:
    """The scorer is told its address once: elsewhere it would answer nobody."""
    await stack._start_simulator()
    part = stack._parts["simulator"]
    killed = part.process.pid
    assert killed is not None
    stop = asyncio.Event()
    watching = asyncio.create_task(stack.watch(stop))
    try:
        os.kill(killed, signal.SIGKILL)
        async with asyncio.timeout(30):
            while part.process.log.read_text(encoding="utf-8").count('"listening"') < 2:
                await asyncio.sleep(0.02)
        assert part.process.pid not in (None, killed)
        assert await asyncio.to_thread(_models, stack.model_url)
    finally:
        stop.set()
        await watching


class Ends:
    """In place of the parts of a stack and of what becomes of its requests: what was asked when."""

    by_evidence = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def alive(self, name: str) -> bool:
        return True

    async def end(self, *names: str) -> None:
        self.asked.append(names)

    async def leave_off(self) -> None:
        self.asked.append(("leave off",))

    async def wait_for_evidence(self) -> None:
        self.asked.append(("wait for evidence",))

    def say_what_is_open(self) -> None:
        self.asked.append(("say",))


@pytest.mark.parametrize("by_evidence", [True, False])
async def test_evidence_reads_to_the_end_where_nothing_else_keeps_it(
    stack: Stack, by_evidence: bool
) -> None:
    """Issue 6, item 4: what the services write last on an embedded broker is in no later log."""
    ends = Ends()
    ends.by_evidence = by_evidence
    stack._parts = stack._kept = ends  # type: ignore[assignment]
    await stack.stop()
    others = tuple(name for name in SERVICES if name != "evidence")
    first = [others, ("wait for evidence",), ("evidence",)] if by_evidence else [SERVICES]
    assert ends.asked == [("leave off",), *first, ("simulator",), ("say",)]


async def test_a_part_gets_each_setting_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting and its `_FILE` are one; a service refuses both. Its log is its owner's alone."""
    monkeypatch.setenv("ASSAY_SCORER__MODEL_FILE", "/x")
    monkeypatch.setenv("ASSAY_SCORER__API_KEY_FILE", "/y")
    parts = Parts(tmp_path / "run", lambda text: None)
    try:
        part = parts.launch("part", ["-c", SHOWS_ITS_SETTINGS], {"ASSAY_SCORER__MODEL": "mine"})
        shown = json.loads(await parts.line(part, "{"))
    finally:
        await parts.end("part")
    assert shown["ASSAY_SCORER__MODEL"] == "mine"
    assert "ASSAY_SCORER__MODEL_FILE" not in shown
    assert shown["ASSAY_SCORER__API_KEY_FILE"] == "/y"
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE(part.process.log.stat().st_mode) == 0o600
