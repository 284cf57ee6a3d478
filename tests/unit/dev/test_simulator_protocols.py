"""Both protocols of the model simulator, as a client sees them (DESIGN §5, SPEC S1.2)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from deploy.dev.simulator import Simulator
from tests.unit.dev.wallet_calls import GATE, PROCESS, STEP, chat, prompt, wallet_input

TINY = {"type": "object", "properties": {"ok": {"const": True}}, "required": ["ok"]}


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with Simulator() as simulator, aiohttp.ClientSession(simulator.url) as session:
        yield session


async def post(client: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    async with client.post(path, json=body) as response:
        return response.status, await response.json()


def openai(schema: Any, text: str = "hello", **more: Any) -> dict[str, Any]:
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    messages = [{"role": "user", "content": text}]
    return {"model": "simulator", "messages": messages, "response_format": form, **more}


async def test_chat_has_the_shape_of_ollama_and_says_that_it_is_simulated(client: Any) -> None:
    """DESIGN §5: what it produces is labelled `model: simulator`."""
    status, answer = await post(client, "/api/chat", chat())
    assert status == 200
    assert answer["model"] == "simulator"
    assert answer["message"]["role"] == "assistant"
    assert (answer["done"], answer["done_reason"]) == (True, "stop")
    assert answer["eval_count"] > 0
    assert answer["prompt_eval_count"] > 0
    assert GATE.judge(answer["message"]["content"]).accepted


async def test_both_protocols_and_both_ollama_calls_give_the_same_score(client: Any) -> None:
    """S1.2: the schema travels as `format` or as `response_format`."""
    record = wallet_input()
    wire = PROCESS.wire_schema(STEP, record)
    body = {**chat(record), "prompt": prompt(record)}
    _, chatted = await post(client, "/api/chat", chat(record))
    _, generated = await post(client, "/api/generate", body)
    _, completed = await post(client, "/v1/chat/completions", openai(wire, prompt(record)))
    choice = completed["choices"][0]
    assert completed["model"] == "simulator"
    assert choice["finish_reason"] == "stop"
    assert completed["usage"]["total_tokens"] > completed["usage"]["prompt_tokens"] > 0
    assert chatted["message"]["content"] == generated["response"] == choice["message"]["content"]


async def test_a_format_canary_is_obeyed(client: Any) -> None:
    """DESIGN §5: the start-up canary asks for a tiny schema."""
    _, answer = await post(client, "/api/chat", {**chat(), "format": TINY})
    assert json.loads(answer["message"]["content"])["ok"] is True
    _, answer = await post(client, "/v1/chat/completions", openai(TINY))
    assert json.loads(answer["choices"][0]["message"]["content"])["ok"] is True


async def test_without_a_schema_it_writes_words_or_some_object(client: Any) -> None:
    _, words = await post(client, "/api/chat", {**chat(), "format": ""})
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(words["message"]["content"])
    _, found = await post(client, "/api/chat", {**chat(), "format": "json"})
    assert isinstance(json.loads(found["message"]["content"]), dict)
    body = openai(TINY) | {"response_format": {"type": "json_object"}}
    _, found = await post(client, "/v1/chat/completions", body)
    assert isinstance(json.loads(found["choices"][0]["message"]["content"]), dict)


async def test_the_token_limit_cuts_and_says_length(client: Any) -> None:
    """DESIGN §5: `length` is a failure, so it has to be told."""
    short = chat()
    short["options"]["num_predict"] = 10
    _, answer = await post(client, "/api/chat", short)
    assert answer["done_reason"] == "length"
    assert answer["eval_count"] == 10
    body = openai(PROCESS.wire_schema(STEP, wallet_input()), prompt(wallet_input()), max_tokens=10)
    _, answer = await post(client, "/v1/chat/completions", body)
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_the_server_can_be_asked_what_it_is(client: Any) -> None:
    async with client.get("/api/version") as response:
        assert "simulator" in (await response.json())["version"]
    async with client.get("/api/tags") as response:
        (model,) = (await response.json())["models"]
    assert model["name"] == "simulator"
    assert len(bytes.fromhex(model["digest"])) == 32
    _, shown = await post(client, "/api/show", {"model": "simulator"})
    assert shown["capabilities"] == ["completion"]
    async with client.get("/v1/models") as response:
        assert [card["id"] for card in (await response.json())["data"]] == ["simulator"]


@pytest.mark.parametrize(
    ("path", "changes", "status", "told"),
    [
        ("/api/chat", {"stream": True}, 400, "stream"),
        ("/api/chat", {"stream": None}, 400, "stream"),
        ("/api/chat", {"model": "llama3"}, 404, "llama3"),
        ("/api/chat", {"messages": []}, 400, "messages"),
        ("/api/chat", {"messages": [{"role": "user"}]}, 400, "messages[0].content"),
        ("/api/chat", {"format": "yaml"}, 400, "format"),
        ("/api/chat", {"options": {"seed": "x"}}, 400, "seed"),
        ("/api/chat", {"format": {"type": "float"}}, 400, "schema"),
        ("/api/chat", {"format": {"$ref": "https://a.example/s"}}, 400, "a.example"),
        ("/api/chat", {"format": {"minimum": 3, "maximum": 2}}, 400, "'maximum'"),
        ("/api/generate", {}, 400, "prompt"),
        ("/v1/chat/completions", {"stream": True}, 400, "stream"),
        ("/v1/chat/completions", {"response_format": {"type": "xml"}}, 400, "response_format.type"),
        ("/v1/chat/completions", {"response_format": {"type": "json_schema"}}, 400, "schema"),
    ],
)
async def test_what_it_cannot_do_is_refused_by_name(
    client: Any, path: str, changes: dict[str, Any], status: int, told: str
) -> None:
    body = chat() | changes
    if changes.get("stream", False) is None:
        del body["stream"]  # Ollama streams unless told not to
    found, answer = await post(client, path, body)
    assert found == status
    error = answer["error"]
    assert told in (error["message"] if path.startswith("/v1") else error)


async def test_a_body_that_is_no_json_is_refused(client: Any) -> None:
    for body in (b"{", b"[1]", b"\xff"):
        async with client.post("/api/chat", data=body) as response:
            assert response.status == 400
            assert "JSON" in (await response.json())["error"]
