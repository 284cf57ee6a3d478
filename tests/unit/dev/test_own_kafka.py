"""A stack's own Kafka is started again where it was (issue 3 item 5)."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.dev import own_kafka
from deploy.dev.own_kafka import OwnKafka
from deploy.kafka import jars
from deploy.owned_process import OwnedProcess, ServerError

PORT = 29_092


class Stub:
    """What OwnKafka needs of a broker, as a process that only sleeps."""

    made: list[Stub] = []
    refuses = 0
    takes_s = 0.0

    def __init__(self, folder: Path, port: int | None, *, dies_with_parent: bool) -> None:
        assert dies_with_parent
        self.wanted = port
        self.process = OwnedProcess(folder / "broker.pid", folder / "broker.log")
        Stub.made.append(self)

    port = PORT
    bootstrap = f"127.0.0.1:{PORT}"

    @property
    def running(self) -> bool:
        return self.process.pid is not None

    def start(self) -> None:
        time.sleep(Stub.takes_s)
        if Stub.refuses:
            Stub.refuses -= 1
            raise ServerError("the port is taken")
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        self.process.launch(command, parent_death=signal.SIGKILL)


@pytest.fixture
async def kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[OwnKafka, list[str]]]:
    monkeypatch.setattr(Stub, "made", [])
    monkeypatch.setattr(Stub, "refuses", 0)
    monkeypatch.setattr(Stub, "takes_s", 0.0)
    monkeypatch.setattr(own_kafka, "Broker", Stub)
    monkeypatch.setattr(own_kafka, "_AGAIN_S", 0.05)
    monkeypatch.setattr(jars, "fetch", lambda: Path())
    said: list[str] = []
    made = OwnKafka(tmp_path / "kafka", said.append)
    await made.start()
    assert stat.S_IMODE((tmp_path / "kafka").stat().st_mode) == 0o700
    yield made, said
    await made.stop()


def _kill() -> int:
    pid = Stub.made[-1].process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


async def _until(look: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not look():
            await asyncio.sleep(0.02)


async def test_a_killed_broker_comes_back_on_its_port(kafka: tuple[OwnKafka, list[str]]) -> None:
    """It is said, and tried again for as long as it does not start."""
    owned, said = kafka
    Stub.refuses = 1
    killed = _kill()
    await _until(lambda: not Stub.made[-1].running)

    def back() -> bool:
        owned.look()
        return "back" in said[-1]

    await _until(back)
    assert Stub.made[-1].process.pid not in (None, killed)
    assert [stub.wanted for stub in Stub.made] == [None, PORT, PORT]
    assert said[1] == f"Apache Kafka at 127.0.0.1:{PORT} ended; starting it again"
    assert said[2] == "Apache Kafka was not started again: the port is taken"
    owned.look()
    assert len(Stub.made) == 3


async def test_an_end_while_it_is_started_again_leaves_nothing(
    kafka: tuple[OwnKafka, list[str]],
) -> None:
    """Ctrl-C at any moment."""
    owned, _ = kafka
    _kill()
    await _until(lambda: not Stub.made[-1].running)
    Stub.takes_s = 0.5
    owned.look()
    await owned.stop()
    assert len(Stub.made) == 2
    await asyncio.sleep(Stub.takes_s + 0.3)
    assert not Stub.made[-1].running
