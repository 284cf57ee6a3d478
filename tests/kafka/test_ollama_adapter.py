"""The Ollama adapter against a real Ollama with random weights (SPEC S1.2; DESIGN §5)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from assay.events import GenerationAnswered
from assay_gate.process import load_process
from assay_gate.wire_schema import derive_wire_schema
from deploy.dev.ollama.server import OllamaServer
from services.scorer.adapters.assembly import build_endpoint, build_provider
from services.scorer.answers import DURATION
from services.scorer.domain.provider import (
    ModelCall,
    ModelMisconfigured,
    ModelProtocolError,
    ModelRefused,
    ModelServerError,
    ModelTimeout,
    ModelUnavailable,
    Provider,
)
from services.scorer.settings import ScorerSection
from tests.unit.scorer.asking import ScorerStage, write_process

REPO = Path(__file__).parents[2]
SHORT = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 100},
        "fixed": {"type": "integer"},
        "word": {"enum": ["a", "b"]},
    },
    "required": ["n", "fixed", "word"],
}
LONG = {"type": "array", "items": {"type": "integer"}, "minItems": 300}
HIGHEST_SEED = (1 << 32) - 2


def provider_of(server: OllamaServer, kind: str = "ollama", **changes: Any) -> Provider:
    settings: dict[str, Any] = {"provider": kind, "url": server.url, "model": "random"}
    return build_provider(ScorerSection(**settings | {"num_ctx": 2048} | changes))


def call(schema: dict[str, Any], **changes: Any) -> ModelCall:
    fields: dict[str, Any] = {
        "prompt": "Score this wallet.",
        "wire_schema": schema,
        "temperature": 0.3,
        "seed": HIGHEST_SEED,
        "max_tokens": 400,
        "num_ctx": 2048,
        "deadline_s": 60.0,
    }
    return ModelCall(**fields | changes)


@pytest.mark.parametrize("kind", ["ollama", "openai"])
async def test_the_wire_schema_is_obeyed(ollama_server: OllamaServer, kind: str) -> None:
    """S1.2, S3.4: a real grammar from a derived schema, the assigned value pinned."""
    wire = derive_wire_schema(SHORT, [("$.fixed", 50)])
    provider = provider_of(ollama_server, kind)
    reply = await provider.generate(call(wire))
    value = json.loads(reply.raw)
    jsonschema.validate(value, wire)
    assert value["fixed"] == 50
    assert reply.finish_reason == "stop"
    assert reply.usage["completion_tokens"] > 0
    assert reply.model.startswith("random")
    assert (reply.model_digest == "unknown") is (kind == "openai")
    await provider.aclose()


def _digest(server: OllamaServer) -> str:
    """What the server itself says of the model."""
    [model] = httpx.get(f"{server.url}/api/tags").json()["models"]
    assert re.fullmatch("[0-9a-f]{64}", model["digest"])
    return str(model["digest"])


@pytest.mark.parametrize("kind", ["ollama", "openai"])
async def test_the_facts_of_an_attempt_are_filled(
    ollama_server: OllamaServer, kind: str, tmp_path: Path
) -> None:
    """S5.5: what evidence keeps of an attempt: tokens, digest, hashes and duration."""
    write_process(tmp_path, "talk")
    provider = provider_of(ollama_server, kind)
    stage = ScorerStage(tmp_path, provider)
    message = await stage.message("asked", {"word": "bees", "limit": 9})
    event = GenerationAnswered.model_validate_json(message.value)
    assert event.raw is not None
    assert event.provider == kind
    assert event.model.startswith("random")
    assert event.model_digest == (_digest(ollama_server) if kind == "ollama" else "unknown")
    assert event.usage.keys() == {"prompt_tokens", "completion_tokens"}
    assert min(event.usage.values()) > 0
    assert event.meta.process_hash == load_process(tmp_path / "talk").hash
    assert event.prompt_sha256 == hashlib.sha256(event.prompt.encode()).hexdigest()
    assert event.schema_sha256 is not None
    assert int(dict(message.headers)[DURATION]) > 0
    await provider.aclose()


async def test_the_wallet_score_grammar_is_taken(ollama_server: OllamaServer) -> None:
    """S1.2: the engine accepts the whole grammar; random weights seldom end their texts."""
    schema = json.loads(
        (REPO / "schemas/processes/wallet_score/output.schema.json").read_text(encoding="utf-8")
    )
    wire = derive_wire_schema(schema, [("$.scoreBreakdown.surveyMatch", 50)])
    provider = provider_of(ollama_server)
    reply = await provider.generate(call(wire))
    assert reply.raw.lstrip().startswith("{")
    assert '"surveyMatch"' in reply.raw.replace(" ", "")
    assert reply.finish_reason in ("stop", "length")
    await provider.aclose()


@pytest.mark.parametrize("kind", ["ollama", "openai"])
async def test_the_canary_is_obeyed(ollama_server: OllamaServer, kind: str) -> None:
    """DESIGN §5: grammar enforced, so the verdict is obeyed."""
    provider = provider_of(ollama_server, kind)
    assert (await provider.probe()).verdict == "obeyed"
    await provider.aclose()


async def test_a_cut_answer_says_length(ollama_server: OllamaServer) -> None:
    """DESIGN §5: num_predict ends it, and the reason tells."""
    provider = provider_of(ollama_server)
    reply = await provider.generate(call(LONG, max_tokens=20))
    assert reply.finish_reason == "length"
    await provider.aclose()


async def test_a_prompt_that_does_not_fit_is_noticed(ollama_server: OllamaServer) -> None:
    """DESIGN §5: by num_ctx and by the model's own context; never a score from half a prompt."""
    provider = provider_of(ollama_server)
    for num_ctx in (1024, 16_384):
        with pytest.raises((ModelProtocolError, ModelRefused)):
            await provider.generate(call(SHORT, prompt="word " * 4000, num_ctx=num_ctx))
    await provider.aclose()


async def test_errors_of_a_real_server(ollama_server: OllamaServer) -> None:
    """DESIGN §5: deadline, unknown model and a refused request are told apart."""
    provider = provider_of(ollama_server)
    with pytest.raises(ModelTimeout):
        await provider.generate(call(LONG, deadline_s=0.05))
    with pytest.raises((ModelRefused, ModelServerError)):  # 500 in older versions
        await provider.generate(call({"type": "nothing"}))
    await provider.aclose()
    provider = provider_of(ollama_server, model="nobody")
    with pytest.raises(ModelMisconfigured, match="not found"):
        await provider.generate(call(SHORT))
    assert (await provider.probe()).verdict == "unreachable"
    await provider.aclose()


async def test_a_killed_server_is_waited_for(disposable_ollama: OllamaServer) -> None:
    """X.6: kill -9 in mid-call costs nothing; the call is answered by the restarted server."""
    settings = ScorerSection(
        url=disposable_ollama.url, model="random", failures_to_open=1, probe_initial_s=0.2,
        transport_attempts=1, num_ctx=2048,
    )  # fmt: skip
    provider = build_provider(settings)
    endpoint = build_endpoint(settings, provider)
    await provider.probe()
    running = asyncio.create_task(endpoint.generate(call(LONG, max_tokens=300)))
    await asyncio.sleep(0.1)
    assert not running.done()
    disposable_ollama.kill()
    with pytest.raises(ModelUnavailable):
        await provider.generate(call(SHORT))
    assert not running.done()
    await asyncio.to_thread(disposable_ollama.start)
    async with asyncio.timeout(60):
        assert (await running).raw.startswith("[")
    await endpoint.aclose()
