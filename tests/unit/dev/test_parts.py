"""Parts of a stack that end are started again where they were (issue 3 item 5)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.dev.parts import Parts
from deploy.dev.plan import SERVICES, BrokerChoice, ModelChoice, StackPlan
from deploy.dev.stack import Stack
from deploy.owned_process import ServerError

SHOWS_ITS_SETTINGS = (
    "import json, os, time\n"
    "print(json.dumps({n: v for n, v in os.environ.items() if n.startswith('ASSAY_')}), flush=True)"
    "\ntime.sleep(60)"
)

# Says the number of its connection and ends.
ANSWERS_ONCE = (
    "import os, socket\n"
    "door = socket.socket(fileno=int(os.environ['ASSAY_HTTP__FD']))\n"
    "door.setblocking(True)\n"
    "caller, _ = door.accept()\n"
    "caller.sendall(str(os.getpid()).encode())"
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


async def test_a_service_that_is_started_again_keeps_its_port(tmp_path: Path) -> None:
    """Nobody else gets it meanwhile, and who connects waits; with the end it is given up."""
    said: list[str] = []
    parts = Parts(tmp_path / "run", said.append)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = str(taken.getsockname()[1])
        part = parts.launch("part", ["-c", ANSWERS_ONCE], {"ASSAY_HTTP__PORT": wanted})
    port = int(part.environment["ASSAY_HTTP__PORT"])
    assert said == [f"port {wanted} is taken; part uses {port}"]

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answer = await reader.read()
        writer.close()
        return answer

    try:
        async with asyncio.timeout(30):
            first = await ask()
            while part.process.pid is not None:
                await asyncio.sleep(0.01)
            with socket.socket() as thief:
                thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with pytest.raises(OSError, match="in use"):
                    thief.bind(("127.0.0.1", port))
            waiting = asyncio.create_task(ask())
            await parts.look()
            second = await waiting
    finally:
        await parts.end("part")
    assert b"" != first != second != b""
    with pytest.raises(ConnectionRefusedError):
        await ask()


async def test_an_address_that_cannot_be_had_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_HTTP__HOST", "192.0.2.1")
    parts = Parts(tmp_path / "run", lambda text: None)
    with pytest.raises(ServerError, match=r"part: ASSAY_HTTP__HOST.*192\.0\.2\.1:0"):
        parts.launch("part", ["-c", ANSWERS_ONCE], {"ASSAY_HTTP__PORT": "0"})
