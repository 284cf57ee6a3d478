"""CPU of a model call: the scorer's adapters beside bare clients (issue 6, DESIGN §5).

`python -m tests.bench.http_client` prints a table and writes build/http_client.json. A server in a
process of its own answers 3.6 KB requests with 0.7 KB at once; each client runs in another
process, pinned to one core, with 64 calls under way. `calls_per_core_s` is calls per second of
the client's own CPU time, so what else the machine does hardly matters; rounds are interleaved.

`ollama` and `openai` are the scorer's own path: circuit breaker, slots, request built from prompt
and wire schema, transport, bounded reading, reply taken apart. The bare clients send ready bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from services.scorer.adapters.assembly import build_endpoint, build_provider
from services.scorer.domain.provider import ModelCall
from services.scorer.settings import ScorerSection
from tests.bench.report import machine

REPO = Path(__file__).resolve().parents[2]
OUTPUT = REPO / "build" / "http_client.json"
CONNECTIONS = 64
REQUEST_BYTES, REPLY_BYTES = 3_600, 700
GOAL = 2_500
WARM_UP = 500
BASELINES = {
    "aiohttp": "aiohttp, ready bytes",
    "httpx": "httpx, its own transport",
    "httpx-aiohttp": "httpx over aiohttp's transport",
}
ADAPTERS = {"ollama": "our adapter, Ollama", "openai": "our adapter, OpenAI protocol"}

Call = Callable[[int], Awaitable[Any]]


def wire_schema() -> dict[str, Any]:
    """About 1.1 KB of the 3.6, as a derived schema of five dimensions and texts is."""
    part = {"type": "integer", "minimum": 0, "maximum": 100, "description": "a dimension " * 5}
    names = ("activity", "maturity", "diversity", "riskBehavior", "surveyMatch")
    return {
        "type": "object",
        "properties": {
            **dict.fromkeys(names, part),
            "score": {"type": "integer", "minimum": 0, "maximum": 1000},
            "reasoning": {"type": "string", "minLength": 10, "maxLength": 500},
            "strengths": {"type": "array", "items": {"type": "string"}},
        },
        "required": [*names, "score", "reasoning", "strengths"],
        "additionalProperties": False,
    }


SCHEMA = wire_schema()


def model_call(number: int) -> ModelCall:
    """A call whose prompt is no other call's, of REQUEST_BYTES with what surrounds it."""
    around = len(json.dumps(SCHEMA)) + 260
    prompt = f"Wallet {number:012d}: " + 'walletAge: 1262, "questionnaire"\n' * 200
    return ModelCall(prompt[: REQUEST_BYTES - around], SCHEMA, 0.3, number, 1024, 16_384, 60.0)


def replies() -> dict[bytes, bytes]:
    """What the server says, by path."""
    text = json.dumps({"score": 778, "reasoning": "Consistent repayment. " * 17})[:REPLY_BYTES]
    ollama = {
        "model": "bench", "created_at": "2026-01-01T00:00:00.000000Z",
        "message": {"role": "assistant", "content": text}, "done": True, "done_reason": "stop",
        "total_duration": 4_883_583_458, "load_duration": 1_334_875, "eval_count": 282,
        "prompt_eval_count": 926, "prompt_eval_duration": 342_546_000,
    }  # fmt: skip
    openai = {
        "id": "x", "object": "chat.completion", "model": "bench",
        "choices": [{"index": 0, "finish_reason": "stop",
                     "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 926, "completion_tokens": 282, "total_tokens": 1208},
    }  # fmt: skip
    bodies: dict[bytes, Any] = {
        b"/api/chat": ollama,
        b"/v1/chat/completions": openai,
        b"/api/tags": {"models": [{"name": "bench", "digest": "d" * 64}]},
        b"/api/show": {"model_info": {"llama.context_length": 131_072}},
    }
    return {path: json.dumps(body).encode() for path, body in bodies.items()}


class Answering(asyncio.Protocol):
    """Just enough HTTP/1.1: reads each request to its end and answers by its path."""

    def __init__(self) -> None:
        self._seen = bytearray()
        self._replies = {
            path: b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: x\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            for path, body in replies().items()
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._seen += data
        while (end := self._seen.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._seen[:end])
            lines = head.lower().split(b"\r\n")
            size = next((int(x[15:]) for x in lines if x.startswith(b"content-length:")), 0)
            if len(self._seen) < end + 4 + size:
                return
            del self._seen[: end + 4 + size]
            self._transport.write(self._replies[head.split(b" ", 2)[1]])


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def drive(call: Call, calls: int) -> float:
    """CPU seconds for that many calls, CONNECTIONS at a time, after a warm-up."""
    numbers = iter(range(calls + WARM_UP))
    begun = 0.0

    async def caller() -> None:
        nonlocal begun
        for number in numbers:
            if number == WARM_UP:
                begun = time.process_time()
            await call(number)

    await asyncio.gather(*(caller() for _ in range(CONNECTIONS)))
    return time.process_time() - begun


async def measure(client: str, url: str, calls: int) -> float:
    """CPU seconds of one client."""
    if client in ADAPTERS:
        section = ScorerSection.model_validate(
            {"provider": client, "url": url, "model": "bench", "slots": CONNECTIONS}
        )
        endpoint = build_endpoint(section, build_provider(section))
        try:
            return await drive(lambda number: endpoint.generate(model_call(number)), calls)
        finally:
            await endpoint.aclose()
    body, path = b"x" * REQUEST_BYTES, f"{url}/api/chat"
    headers = {"content-type": "application/json"}
    if client == "aiohttp":
        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

            async def bare(number: int) -> None:
                async with session.post(path, data=body) as response:
                    json.loads(await response.read())

            return await drive(bare, calls)
    import httpx
    from httpx_aiohttp import AiohttpTransport

    limits = httpx.Limits(max_connections=CONNECTIONS)
    transport = AiohttpTransport(limits=limits) if client == "httpx-aiohttp" else None
    async with httpx.AsyncClient(
        limits=limits, transport=transport, headers=headers, timeout=None
    ) as http:

        async def through_httpx(number: int) -> None:
            json.loads((await http.post(path, content=body)).content)

        return await drive(through_httpx, calls)


def in_own_process(client: str, url: str, calls: int, core: int) -> float:
    """CPU seconds per call of a client alone in a process on one core."""
    command = [sys.executable, "-m", "tests.bench.http_client", "--client", client]
    command += ["--url", url, "--calls", str(calls), "--core", str(core)]
    done = subprocess.run(command, cwd=REPO, check=True, capture_output=True, text=True)
    return float(done.stdout) / calls


def compare(rounds: int, calls: int, clients: list[str]) -> dict[str, Any]:
    """Median CPU per call of each client, measured in turn."""
    cores = sorted(os.sched_getaffinity(0))
    seconds: dict[str, list[float]] = {client: [] for client in clients}
    command = [sys.executable, "-m", "tests.bench.http_client", "--serve"]
    with subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True) as server:
        try:
            os.sched_setaffinity(server.pid, {cores[0]})
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(server.stdout.readline())}"
            for _ in range(rounds):
                for client, found in seconds.items():
                    fewer = calls // 10 if client == "httpx" else calls
                    found.append(in_own_process(client, url, fewer, cores[-1]))
        finally:
            server.terminate()
    return {
        client: {
            "cpu_us_per_call": round(statistics.median(found) * 1e6, 1),
            "calls_per_core_s": round(1 / statistics.median(found)),
            "rounds_us": [round(each * 1e6, 1) for each in found],
        }
        for client, found in seconds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=8_000)
    parser.add_argument("--core", type=int)
    parser.add_argument("--client", help="measure this one here (used by the benchmark itself)")
    parser.add_argument("--url", default="")
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve())
    elif given.client and given.url:
        os.sched_setaffinity(0, {given.core})
        print(asyncio.run(measure(given.client, given.url, given.calls)))
    else:
        report(given.rounds, given.calls, [given.client] if given.client else None)


def report(rounds: int, calls: int, only: list[str] | None = None) -> None:
    names = BASELINES | ADAPTERS
    found = compare(rounds, calls, only or list(names))
    print(f"{'client':34}{'calls/s/core':>14}{'CPU us/call':>14}")
    for client, figures in found.items():
        rate, cost = figures["calls_per_core_s"], figures["cpu_us_per_call"]
        print(f"{names[client]:34}{rate:14,}{cost:14.0f}")
    if only is not None:
        return
    document = {
        "connections": CONNECTIONS,
        "request_bytes": REQUEST_BYTES,
        "reply_bytes": REPLY_BYTES,
        "goal_calls_per_core_s": GOAL,
        "clients": found,
        "machine": machine(),
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    written = OUTPUT.relative_to(REPO)
    print(f"goal for ours: {GOAL:,} calls per second of one core; written: {written}")


if __name__ == "__main__":
    main()
