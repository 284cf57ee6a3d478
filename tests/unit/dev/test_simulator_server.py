"""The running simulator: control, counts, slots, broken connections, start and end."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.dev.simulator import Simulator
from tests.unit.dev.wallet_calls import REPO, chat


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with Simulator() as simulator, aiohttp.ClientSession(simulator.url) as session:
        yield session


async def control(client: aiohttp.ClientSession, **changes: Any) -> dict[str, Any]:
    async with client.post("/control", json=changes) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def stats(client: aiohttp.ClientSession) -> dict[str, Any]:
    async with client.get("/stats") as response:
        return await response.json()


async def status_of(client: aiohttp.ClientSession, seed: int = 7) -> int:
    async with client.post("/api/chat", json=chat(seed=seed)) as response:
        await response.read()
        return response.status


async def until(client: aiohttp.ClientSession, **wanted: int) -> None:
    async with asyncio.timeout(10):
        while not wanted.items() <= (await stats(client)).items():
            await asyncio.sleep(0.01)


async def test_behaviour_is_shown_changed_and_refused_by_name(client: Any) -> None:
    assert (await control(client))["rates"] == {}
    shown = await control(client, rates={"nan": 0.5}, latency_ms=1, gullible=True)
    assert shown["rates"] == {"nan": 0.5}
    async with client.get("/control") as response:
        assert await response.json() == shown
    assert (await control(client, profile="well-behaved"))["gullible"] is False
    for bad, named in (
        ({"sped": 1}, "sped"),
        ({"rates": {"nun": 1}}, "nun"),
        ({"rates": {"nan": 2}}, "rates.nan"),
        ({"rates": {"nan": 0.6, "empty": 0.6}}, "more than 1"),
        ({"always": "sleep"}, "always"),
        ({"slots": -1}, "slots"),
        ({"gullible": "yes"}, "gullible"),
        ({"profile": "worst"}, "profile"),
    ):
        async with client.post("/control", json=bad) as response:
            assert response.status == 400
            assert named in (await response.json())["error"]
    assert (await control(client))["rates"] == {}


async def test_what_happened_is_counted_and_can_be_cleared(client: Any) -> None:
    await control(client, always="nan")
    async with client.post("/api/chat", json=chat(attempt=2)) as response:
        assert response.headers["X-Simulator-Fault"] == "nan"
    found = await stats(client)
    assert (found["calls"], found["retries"]) == (1, 1)
    assert found["faults"] == {"nan": 1}
    assert found["statuses"] == {"200": 1}
    await control(client, reset=True)
    assert (await stats(client))["calls"] == 0


@pytest.mark.parametrize(
    ("fault", "status"),
    [("http_500", 500), ("http_503", 503), ("http_429", 429), ("model_missing", 404)],
)
async def test_error_statuses_come_in_both_spellings(client: Any, fault: str, status: int) -> None:
    """X.6: a provider that is down or busy."""
    await control(client, always=fault, retry_after_s=3)
    async with client.post("/api/chat", json=chat()) as response:
        assert response.status == status
        assert isinstance((await response.json())["error"], str)
        assert response.headers.get("Retry-After") == ("3" if status in (429, 503) else None)
    async with client.post("/v1/chat/completions", json=chat()) as response:
        assert (await response.json())["error"]["message"]


async def test_a_refusal_has_its_own_field_in_one_protocol(client: Any) -> None:
    await control(client, always="refusal")
    async with client.post("/v1/chat/completions", json=chat()) as response:
        message = (await response.json())["choices"][0]["message"]
    assert message["content"] is None
    assert message["refusal"]


async def test_a_reset_connection_and_a_rubbish_body(client: Any) -> None:
    """X.6."""
    await control(client, always="reset")
    with pytest.raises(aiohttp.ClientConnectionError):
        await status_of(client)
    await control(client, always="malformed_body")
    async with client.post("/api/chat", json=chat()) as response:
        assert response.status == 200
        with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
            json.loads(await response.text())
    assert (await stats(client))["faults"] == {"malformed_body": 1, "reset": 1}


async def test_a_hang_holds_its_slot_until_the_client_goes(client: Any) -> None:
    """X.6: a hang costs an attempt of the client's, and nothing of the server's."""
    await control(client, always="hang", slots=1)
    hanging = asyncio.create_task(status_of(client))
    await until(client, in_flight=1)
    await control(client, always=None)
    second = asyncio.create_task(status_of(client))
    await until(client, waiting=1)
    hanging.cancel()
    assert await second == 200
    found = await stats(client)
    assert found["faults"] == {"hang": 1}
    assert (found["disconnected"], found["in_flight"]) == (1, 0)


async def test_a_hang_ends_at_its_cap(client: Any) -> None:
    await control(client, always="hang", hang_cap_s=0.05)
    assert await status_of(client) == 503


async def test_slots_bound_what_runs_and_the_queue_what_waits(client: Any) -> None:
    """As Ollama does: 503 beyond OLLAMA_MAX_QUEUE."""
    await control(client, slots=2, queue=3, latency_ms=100)
    found = await asyncio.gather(*(status_of(client, seed) for seed in range(9)))
    assert sorted(found) == [200] * 5 + [503] * 4
    assert (await stats(client))["peak_in_flight"] == 2


async def test_a_client_that_goes_while_waiting_leaves_the_queue(client: Any) -> None:
    await control(client, slots=1, always="hang")
    tasks = [asyncio.create_task(status_of(client, seed)) for seed in range(3)]
    await until(client, in_flight=1, waiting=2)
    tasks[1].cancel()
    tasks[2].cancel()
    await until(client, waiting=0, in_flight=1)
    await control(client, always=None, slots=2)
    assert await status_of(client, 9) == 200
    tasks[0].cancel()


async def test_more_slots_let_waiting_calls_in(client: Any) -> None:
    await control(client, slots=1, always="hang")
    hanging = asyncio.create_task(status_of(client))
    await until(client, in_flight=1)
    await control(client, always=None)
    waiting = asyncio.create_task(status_of(client))
    await until(client, waiting=1)
    await control(client, slots=2)
    assert await waiting == 200
    hanging.cancel()


async def test_latency_is_waited(client: Any) -> None:
    await control(client, latency_ms=80, jitter_ms=20)
    started = time.monotonic()
    await status_of(client)
    assert time.monotonic() - started >= 0.08


async def test_a_taken_port_is_an_error() -> None:
    async with Simulator() as first:
        with pytest.raises(OSError, match="address"):
            await Simulator(port=first.port).start()


async def launched(*options: str, **environ: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.dev.simulator", *options,
        cwd=REPO, env={"PATH": str(Path(sys.executable).parent), **environ},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_the_program_says_where_it_listens_and_ends_with_a_call_hanging() -> None:
    process = await launched("--json", "--always", "hang", SIMULATOR__SLOTS="3")
    assert process.stdout is not None
    try:
        line = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
        assert (line["event"], line["model"]) == ("listening", "simulator")
        assert line["url"] == f"http://127.0.0.1:{line['port']}"
        async with aiohttp.ClientSession(line["url"]) as client:
            assert (await control(client))["slots"] == 3
            hanging = asyncio.create_task(status_of(client))
            await until(client, in_flight=1)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 5) == 0
            await asyncio.gather(hanging, return_exceptions=True)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    ("options", "environ", "told"),
    [
        (["--rate", "nan"], {}, "FAULT=RATE"),
        (["--rate", "nun=1"], {}, "nun"),
        (["--fault-rate", "1.5"], {}, "fault_rate"),
        ([], {"SIMULATOR__SPED": "1"}, "SIMULATOR__SPED"),
        ([], {"SIMULATOR__SLOTS": "many"}, "SIMULATOR__SLOTS"),
        ([], {"SIMULATOR__GULLIBLE": "maybe"}, "SIMULATOR__GULLIBLE"),
    ],
)
async def test_options_that_make_no_sense_end_the_program(
    options: list[str], environ: dict[str, str], told: str
) -> None:
    process = await launched(*options, **environ)
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 2
    assert told in errors.decode()
