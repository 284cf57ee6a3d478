"""The ledger between real processes: races, and processes that die."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay_runtime.failures import Pause
from deploy.kafka.postgres_server import PostgresServer
from services.signer.adapters.ledger_sqlite import SqliteLedger
from services.signer.domain.ports import Ledger
from services.signer.domain.reservation import Conflict, Reserved
from tests.unit.signer.claims import NOW, claim, open_ledger, signature

REPO = Path(__file__).parents[3]
PROCESSES = 8
REQUESTS = int(os.environ.get("ASSAY_LEDGER_RACE", "60"))
KILLS = int(os.environ.get("ASSAY_LEDGER_KILLS", "6"))
SEED = int(os.environ.get("ASSAY_LEDGER_SEED", "20261121"))


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.unit.signer.ledger_process", *arguments],
        cwd=REPO,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_eight_processes_and_one_winner_each(ledger_address: str) -> None:
    """X.2: of conflicting claims exactly one is signed, and no moment of a wallet twice."""
    workers = [_start("race", ledger_address, str(n), str(REQUESTS)) for n in range(PROCESSES)]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "open\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        results = [json.loads(worker.communicate(timeout=600)[0]) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    winners = [request for result in results for request in result["won"]]
    assert sorted(winners) == sorted(f"request-{n}" for n in range(REQUESTS))
    assert sum(result["refused"] for result in results) == (PROCESSES - 1) * REQUESTS
    places = [
        (int(request.partition("-")[2]) % 3, timestamp_ms)
        for result in results
        for request, timestamp_ms in result["won"].items()
    ]
    assert len(set(places)) == REQUESTS


async def _entries(ledger: Ledger, lines: list[dict[str, Any]]) -> None:
    """Whatever a dead process said stands in the ledger."""
    for line in lines:
        entry = await ledger.get(claim(f"request-{line['n']}").request)
        assert entry is not None, line
        if "reserved" in line:
            assert entry.timestamp_ms == line["reserved"]
        elif entry.event is not None:
            assert entry.event.decode() == line["signed"]
        else:
            raise AssertionError(f"{line} was signed, and the ledger has forgotten it")


@pytest.mark.slow
async def test_kill_9_at_any_point(ledger_address: str) -> None:
    """X.2: a signer killed anywhere leaves reservations that the next one finishes, unchanged."""
    chance = random.Random(SEED)
    said: dict[int, set[int]] = {}
    signed: dict[int, set[str]] = {}
    for run in range(KILLS):
        process = _start("stream", ledger_address, str(run))
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(chance.uniform(0, 0.2))
        os.kill(process.pid, signal.SIGKILL)
        # Not by `communicate`, which passes over what `readline` has read ahead.
        rest = process.stdout.read()
        process.communicate()
        lines = [json.loads(line) for line in (first + rest).splitlines() if line.endswith("}")]
        for line in lines:
            if "reserved" in line:
                said.setdefault(line["n"], set()).add(line["reserved"])
            else:
                signed.setdefault(line["n"], set()).add(line["signed"])
        ledger = open_ledger(ledger_address)
        await ledger.open()
        await _entries(ledger, lines)
        await ledger.close()
    # The first line of every process was waited for; how many more came is up to the machine.
    assert said
    assert all(len(timestamps) == 1 for timestamps in said.values())
    assert all(len(events) == 1 for events in signed.values())


async def test_killed_between_reserving_and_signing(ledger_address: str) -> None:
    """X.2: the next signer gets the same payload, and another score stays refused."""
    process = _start("hold", ledger_address)
    assert process.stdout is not None
    timestamp_ms = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    ledger = open_ledger(ledger_address)
    await ledger.open()
    again = claim("held", source="source", body=b"another body")
    answers = await ledger.reserve([again, claim("held", score=990)], timestamp_ms + 1_000)
    assert answers[0] == Reserved(timestamp_ms, b"held", fresh=False)
    assert isinstance(answers[1], Conflict)
    await ledger.close()


@pytest.mark.slow
async def test_postgres_gone_and_back(disposable_postgres: PostgresServer) -> None:
    """X.6: while the database is away the ledger pauses; after it, what was promised stands."""
    address = disposable_postgres.create_database("ledger")
    ledger = open_ledger(address)
    await ledger.open()
    first, second = claim("first"), claim("second")
    [promised] = await ledger.reserve([first], NOW)
    disposable_postgres.kill()
    for _ in range(2):
        with pytest.raises(Pause):
            await ledger.reserve([first, second], NOW)
        with pytest.raises(Pause):
            await ledger.finish([signature(first)])
    disposable_postgres.start()
    again = await ledger.reserve([first, second], NOW + 1)
    assert isinstance(promised, Reserved)
    assert again == [
        Reserved(promised.timestamp_ms, first.body, fresh=False),
        Reserved(NOW + 1, second.body, fresh=True),
    ]
    await ledger.close()


async def test_disk_full(tmp_path: Path) -> None:
    """X.6: a full disk pauses, keeps what was promised, and is over when there is room again."""
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    await ledger.open()
    kept = claim("kept")
    await ledger.reserve([kept], NOW)
    pages = await ledger._file.read(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
    await ledger._file.read(lambda db: db.execute(f"PRAGMA max_page_count={pages + 8}").fetchone())
    large = [claim(f"large-{n}", body=b"x" * 2_000) for n in range(50)]
    with pytest.raises(Pause, match="full"):
        await ledger.reserve(large, NOW)
    assert await ledger.get(large[0].request) is None
    assert await ledger.reserve([kept], NOW) == [Reserved(NOW, kept.body, fresh=False)]
    await ledger._file.read(lambda db: db.execute("PRAGMA max_page_count=100000").fetchone())
    answers = await ledger.reserve(large, NOW)
    assert all(isinstance(a, Reserved) and a.fresh for a in answers)
    await ledger.close()
