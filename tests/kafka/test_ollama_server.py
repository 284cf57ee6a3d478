"""A real Ollama with random weights: what the scorer's adapter meets (DESIGN §8, issue item 6)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from deploy.dev.ollama import __main__ as command
from deploy.dev.ollama import build
from deploy.dev.ollama.make_gguf import make_gguf
from deploy.dev.ollama.server import OllamaServer
from deploy.owned_process import MissingTool, start_mark

SCHEMA = {
    "type": "object",
    "properties": {
        "score": {"type": "integer"},
        "level": {"type": "string", "enum": ["low", "high"]},
        "parts": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
    },
    "required": ["score", "level", "parts"],
    "additionalProperties": False,
}
# So many digits that no machine answers within a tenth of a second.
LONG = {"type": "array", "items": {"type": "integer"}, "minItems": 300}


async def chat(
    server: OllamaServer, *, timeout_s: float = 60, model: str = "random", **request: Any
) -> httpx.Response:
    messages = [{"role": "user", "content": "Score this wallet."}]
    async with httpx.AsyncClient(timeout=timeout_s) as client:
        return await client.post(
            f"{server.url}/api/chat",
            json={"model": model, "messages": messages, "stream": False, **request},
        )


async def test_answers_obey_the_schema(ollama_server: OllamaServer) -> None:
    """`format` is enforced by a grammar; the reply tells why it ended and what it used."""
    options = {"temperature": 0, "seed": 7, "num_predict": 500}
    replies = [(await chat(ollama_server, format=SCHEMA, options=options)).json() for _ in range(2)]
    for reply in replies:
        assert reply["done_reason"] == "stop"
        assert reply["prompt_eval_count"] > 0
        assert reply["eval_count"] > 0
        jsonschema.validate(json.loads(reply["message"]["content"]), SCHEMA)
    assert replies[0]["message"] == replies[1]["message"], "temperature 0 with one seed"


async def test_truncation_is_reported(ollama_server: OllamaServer) -> None:
    """num_predict cuts the answer: done_reason "length", and no valid JSON."""
    reply = (await chat(ollama_server, format=SCHEMA, options={"num_predict": 5})).json()
    assert reply["done_reason"] == "length"
    assert reply["eval_count"] == 5
    with pytest.raises(json.JSONDecodeError):
        json.loads(reply["message"]["content"])


async def test_a_long_generation_outlasts_a_deadline(ollama_server: OllamaServer) -> None:
    """A client that gives up does not harm the next one."""
    with pytest.raises(httpx.ReadTimeout):
        await chat(ollama_server, timeout_s=0.1, format=LONG, options={"num_predict": 2000})
    reply = await chat(ollama_server, format=SCHEMA, options={"num_predict": 500})
    assert reply.status_code == 200


async def test_unknown_model_is_404(ollama_server: OllamaServer) -> None:
    """The model is named, and nothing is fetched."""
    reply = await chat(ollama_server, model="no-such-model")
    assert reply.status_code == 404
    assert "no-such-model" in reply.json()["error"]


async def test_the_digest_is_known(ollama_server: OllamaServer) -> None:
    """`llm.generation.answered.v1` records `model_digest`; /api/tags is where it comes from."""
    async with httpx.AsyncClient() as client:
        models = (await client.get(f"{ollama_server.url}/api/tags")).json()["models"]
    assert [(m["name"], len(m["digest"])) for m in models] == [("random:latest", 64)]


async def test_openai_compatible_reply(ollama_server: OllamaServer) -> None:
    """The second adapter meets the same server under /v1."""
    request = {
        "model": "random",
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 400,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
        },
    }
    async with httpx.AsyncClient(timeout=60) as client:
        reply = (await client.post(f"{ollama_server.url}/v1/chat/completions", json=request)).json()
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)


async def test_pause_kill_and_restart(disposable_ollama: OllamaServer) -> None:
    """Paused: connected and no answer. Killed: refused, and no model runner stays. Back: same."""
    server = disposable_ollama
    assert (await chat(server, options={"num_predict": 5})).status_code == 200
    server.pause()
    with pytest.raises(httpx.ReadTimeout):
        await chat(server, timeout_s=0.5)
    server.resume()
    url = server.url
    runners = runners_of(server)
    assert runners
    server.kill()
    with pytest.raises(httpx.ConnectError):
        await chat(server)
    deadline = time.monotonic() + 10
    while any(start_mark(pid) for pid in runners):
        assert time.monotonic() < deadline
    server.start()
    assert server.url == url
    assert (await chat(server, options={"num_predict": 5})).status_code == 200


def runners_of(server: OllamaServer) -> list[int]:
    """Processes that hold this server's model files open by name."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        words = line.read_bytes().split(b"\0") if line.exists() else []
        if b"runner" in words and any(str(server.data_dir).encode() in word for word in words):
            found.append(int(line.parent.name))
    return found


def test_up_and_down(tmp_path: Path, ollama_server: OllamaServer, capfd: Any) -> None:
    """The command's line can be given to `assay up`; `down` ends this server and no other."""
    where = ["--data", str(tmp_path / "data")]
    try:
        assert command.main(["up", *where]) == 0
        assert capfd.readouterr().out.startswith("Ollama ready: --model ollama:random@http://127.")
    finally:
        assert command.main(["down", *where]) == 0
    assert command.main(["status", *where]) == 1
    assert ollama_server.running


@pytest.mark.ollama
def test_the_model_is_the_same_every_time(tmp_path: Path) -> None:
    """One seed, one file, so one digest."""
    first, second = make_gguf(tmp_path / "a.gguf"), make_gguf(tmp_path / "b.gguf")
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 1_000_000


def test_missing_tools_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Go, an old Go, no compiler: each is named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match=r"^Go 1\.24 or newer is missing"):
        build.build(tmp_path / "build")
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    go.chmod(0o755)
    with pytest.raises(MissingTool, match=r"^Go 1\.24 or newer is needed, 1\.19 is installed"):
        build.build(tmp_path / "build")
    go.write_text("#!/bin/sh\necho go version go1.26 linux/amd64\n")
    with pytest.raises(MissingTool, match=r"apt-get install g\+\+"):
        build.build(tmp_path / "build")
