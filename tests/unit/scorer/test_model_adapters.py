"""Ollama and OpenAI-compatible adapters over real HTTP (SPEC S1.2; DESIGN §5)."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from services.scorer.adapters.assembly import build_endpoint, build_provider
from services.scorer.adapters.model_errors import Busy
from services.scorer.domain.answering import seed_of
from services.scorer.domain.provider import (
    BadGateway,
    ConnectionLost,
    EmptyAnswer,
    ModelCall,
    ModelMisconfigured,
    ModelProtocolError,
    ModelRefused,
    ModelServerError,
    ModelTimeout,
    ModelUnavailable,
    Provider,
)
from services.scorer.domain.wire_text import wire_text
from services.scorer.settings import ScorerSection
from tests.unit.scorer.model_server import (
    Answer,
    ModelServer,
    model_server,
    ollama_reply,
    openai_reply,
    says,
    says_text,
)

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "integer"}}}
SEED = seed_of("0xffffffffffffffffffffffffffffffffffffff01")


def call(deadline_s: float = 5, schema: dict[str, Any] | None = SCHEMA) -> ModelCall:
    return ModelCall("Wie? ✓", schema, 0.3, SEED, 64, 2048, deadline_s)


@asynccontextmanager
async def serving(
    kind: str, *answers: Answer, **settings: Any
) -> AsyncIterator[tuple[Provider, ModelServer]]:
    async with model_server(*answers) as server:
        section = ScorerSection(
            **{"provider": kind, "url": server.url, "model": "tiny", "deadline_s": 5} | settings
        )
        provider = build_provider(section)
        try:
            yield provider, server
        finally:
            await provider.aclose()


async def test_a_prompt_cut_to_the_models_own_context_is_noticed() -> None:
    """DESIGN §5: num_ctx above what the model was made for is lowered by Ollama without a word."""
    async with serving("ollama", says(ollama_reply(prompt_eval_count=1024))) as (provider, server):
        server.context = 1024
        with pytest.raises(ModelProtocolError, match="1024 tokens"):
            await provider.generate(call())
        server.context = 1025
        await provider.probe()
        assert (await provider.generate(call())).usage["prompt_tokens"] == 1024


async def test_what_ollama_is_sent() -> None:
    """S1.2: the schema as `format`; temperature, seed, num_predict and num_ctx always."""
    async with serving("ollama", says(ollama_reply())) as (provider, server):
        await provider.generate(call())
        (path, headers, body) = server.seen[0]
    assert path == "/api/chat"
    assert "Authorization" not in headers
    assert body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Wie? ✓"}],
        "stream": False,
        "format": SCHEMA,
        "options": {"temperature": 0.3, "seed": SEED, "num_predict": 64, "num_ctx": 2048},
        "keep_alive": "10m",
        "truncate": False,
        "shift": False,
    }
    assert list(body["format"]["properties"]) == ["b", "a"]


async def test_what_an_openai_compatible_server_is_sent() -> None:
    """S1.2: the schema as a strict `response_format`, with seed and max_tokens."""
    key = "sk-secret"
    async with serving("openai", says(openai_reply()), api_key=key) as (provider, server):
        await provider.generate(call())
        (path, headers, body) = server.seen[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {key}"
    assert body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Wie? ✓"}],
        "stream": False,
        "temperature": 0.3,
        "seed": SEED,
        "max_tokens": 64,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
        },
    }


async def test_without_a_schema_any_json_is_asked_for() -> None:
    """S5.7: JSON mode of either protocol; a URL with /v1 is taken as well."""
    async with serving("ollama", says(ollama_reply()), think="off") as (provider, server):
        await provider.generate(call(schema=None))
        assert server.seen[0][2]["format"] == "json"
        assert server.seen[0][2]["think"] is False
    async with model_server(says(openai_reply())) as server:
        provider = build_provider(
            ScorerSection(provider="openai", url=server.url + "/v1/", model="tiny")
        )
        await provider.generate(call(schema=None))
        await provider.aclose()
        assert server.seen[0][0] == "/v1/chat/completions"
        assert server.seen[0][2]["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize("kind", ["ollama", "openai"])
async def test_the_schema_is_sent_as_its_hash_names_it(kind: str) -> None:
    """DESIGN §4: the text whose SHA-256 stands in the event is in the body byte for byte."""
    reply = ollama_reply() if kind == "ollama" else openai_reply()
    async with serving(kind, says(reply)) as (provider, server):
        schema = SCHEMA | {"description": "größer"}
        await provider.generate(call(schema=schema))
        assert wire_text(schema).text.encode() in server.bodies[0]


async def test_an_answers_digest_is_asked_for_once() -> None:
    """S5.5: many first calls at once ask the server once who it is, and all are told."""
    async with serving("ollama", says(ollama_reply())) as (provider, server):
        assert provider.model_digest is None
        replies = await asyncio.gather(*(provider.generate(call()) for _ in range(16)))
        assert {reply.model_digest for reply in replies} == {"abc123"}
        assert provider.model_digest == "abc123"
        assert server.identified == 2


async def test_a_digest_that_is_not_told_is_not_asked_for_each_time() -> None:
    """S5.5: unknown is said, at the price of no further requests."""
    for identity in (None, says({}, 404), says_text("no such page"), says([])):
        async with serving("ollama", says(ollama_reply())) as (provider, server):
            server.digest, server.identity = None, identity
            for _ in range(5):
                assert (await provider.generate(call())).model_digest == "unknown"
            assert server.identified == 2


async def test_a_digest_is_asked_for_again_after_an_outage() -> None:
    """S5.5: a server that was away may yet tell."""
    async with serving("ollama", says(ollama_reply())) as (provider, server):
        server.identity = says({"error": "busy"}, 503)
        assert (await provider.generate(call())).model_digest == "unknown"
        server.identity = None
        assert (await provider.generate(call())).model_digest == "abc123"


async def test_a_probe_does_not_take_the_digest_from_answers_meanwhile() -> None:
    """S5.5: until the server told another one, the last one holds."""
    asked, told = asyncio.Event(), asyncio.Event()

    async def slowly(request: web.Request) -> web.StreamResponse:
        asked.set()
        await told.wait()
        return web.json_response({})

    async with serving("ollama", says(ollama_reply())) as (provider, server):
        await provider.generate(call())
        server.identity = slowly
        probing = asyncio.create_task(provider.probe())
        async with asyncio.timeout(5):
            await asked.wait()
            assert (await provider.generate(call())).model_digest == "abc123"
            told.set()
            await probing
        assert (await provider.generate(call())).model_digest == "unknown"


async def test_what_comes_back() -> None:
    """DESIGN §5: text untouched, model and digest as the server tells them, tokens counted."""
    text = '```json\n{"a": 1}\n``` \n'
    async with serving("ollama", says(ollama_reply(text))) as (provider, server):
        reply = await provider.generate(call())
        assert (reply.raw, reply.model, reply.model_digest) == (text, "tiny:latest", "abc123")
        assert reply.finish_reason == "stop"
        assert reply.usage == {"prompt_tokens": 12, "completion_tokens": 5}
        server.digest = "def456"
        await provider.probe()
        assert (await provider.generate(call())).model_digest == "def456"
        server.digest = None
        await provider.probe()
        assert (await provider.generate(call())).model_digest == "unknown"
    async with serving("openai", says(openai_reply(text))) as (provider, _):
        reply = await provider.generate(call())
    assert (reply.raw, reply.model, reply.model_digest) == (text, "tiny-2026", "unknown")
    assert reply.usage == {"prompt_tokens": 12, "completion_tokens": 5}


@pytest.mark.parametrize(
    ("kind", "answer", "finish"),
    [
        ("ollama", ollama_reply('{"a', done_reason="length"), "length"),
        ("openai", openai_reply('{"a', "length"), "length"),
        ("openai", openai_reply("no", "content_filter"), "content_filter"),
        ("openai", openai_reply(None, refusal="I cannot"), "refusal"),
    ],
)
async def test_an_unfinished_answer_is_reported_with_its_reason(
    kind: str, answer: Any, finish: str
) -> None:
    """DESIGN §5: length and filters are finish reasons; the text is not repaired here."""
    async with serving(kind, says(answer)) as (provider, _):
        assert (await provider.generate(call())).finish_reason == finish


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        ("ollama", says(ollama_reply("")), EmptyAnswer),
        ("ollama", says(ollama_reply(" \n")), EmptyAnswer),
        ("ollama", says(ollama_reply(None)), EmptyAnswer),
        ("openai", says(openai_reply(None)), EmptyAnswer),
        ("ollama", says({"error": "llama runner crashed"}), ModelProtocolError),
        ("openai", says({"error": {"message": "bad"}}), ModelProtocolError),
        ("ollama", says_text('{"message":{"content":"{"}}\n{"error":"died"}'), ModelProtocolError),
        ("ollama", says_text("<html>proxy</html>"), ModelProtocolError),
        ("ollama", says_text(b"\xff\xfe"), ModelProtocolError),
        ("ollama", says_text("[" * 50_000), ModelProtocolError),
        ("ollama", says([1]), ModelProtocolError),
        ("ollama", says({"done": True}), ModelProtocolError),
        ("ollama", says(ollama_reply(["text"])), ModelProtocolError),
        ("ollama", says_text('{"message":{"content":"\\ud800"}}'), ModelProtocolError),
        ("ollama", says(ollama_reply(prompt_eval_count=2048)), ModelProtocolError),
        ("openai", says({"choices": []}), ModelProtocolError),
        ("openai", says({"choices": ["text"]}), ModelProtocolError),
        ("ollama", says(ollama_reply("x" * 300_000)), ModelProtocolError),
        ("ollama", says({"error": "model 'tiny' not found"}, 404), ModelMisconfigured),
        ("openai", says({"error": {"message": "bad key"}}, 401), ModelMisconfigured),
        ("ollama", says({}, 302, Location="http://127.0.0.1:1/"), ModelMisconfigured),
        ("ollama", says({"error": "invalid format"}, 400), ModelRefused),
        ("openai", says({"error": {"message": "context length"}}, 422), ModelRefused),
        ("ollama", says({"error": "out of memory"}, 500), ModelServerError),
        ("openai", says_text("gateway timed out", 504), ModelTimeout),
    ],
)
async def test_each_failure_has_its_own_class(
    kind: str, answer: Answer, expected: type[Exception]
) -> None:
    """DESIGN §5: outage, refusal, server fault, rubbish and silence are told apart, asked once."""
    async with serving(kind, answer) as (provider, server):
        with pytest.raises(expected) as caught:
            await provider.generate(call())
        assert type(caught.value) is expected
        assert server.asked == 1
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("kind", ["ollama", "openai"])
async def test_an_error_inside_a_good_status_is_told(kind: str) -> None:
    """DESIGN §5: errors in mid-stream come with HTTP 200; their reason must not get lost."""
    error = {"message": "runner\nended"} if kind == "openai" else "runner\nended"
    async with serving(kind, says({"error": error})) as (provider, _):
        with pytest.raises(ModelProtocolError, match="runner ended"):
            await provider.generate(call())


async def test_busy_servers_are_asked_again() -> None:
    """DESIGN §5: 429, 502 and 503 are retried within the call, Retry-After honoured."""
    answers = [says({"error": "busy"}, 503, **{"Retry-After": "1"}), says({}, 429), says({}, 502)]
    async with serving("ollama", *answers, says(ollama_reply()), transport_attempts=4) as (
        provider,
        server,
    ):
        started = time.monotonic()
        assert (await provider.generate(call())).raw == '{"a": 1}'
        assert server.asked == 4
        assert time.monotonic() - started >= 1


@pytest.mark.parametrize(("status", "expected"), [(429, Busy), (503, Busy), (502, BadGateway)])
async def test_a_server_that_stays_busy_is_unavailable(
    status: int, expected: type[ModelUnavailable]
) -> None:
    """DESIGN §5: after the transport's retries it is an outage, no attempt; load does not explain
    a proxy whose backend does not reply."""
    async with serving("ollama", says({"error": "busy"}, status)) as (provider, server):
        with pytest.raises(expected, match=f"{status}: busy"):
            await provider.generate(call())
        assert server.asked == 3


async def test_a_long_retry_after_ends_with_the_deadline_as_an_outage() -> None:
    """DESIGN §5: the total deadline rules; ending a wait it is no hang of the model."""
    when = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    for value in ("3600", when):
        async with serving("ollama", says({"error": "busy"}, 429, **{"Retry-After": value})) as (
            provider,
            server,
        ):
            with pytest.raises(ModelUnavailable, match="429"):
                await provider.generate(call(0.3))
            assert server.asked == 1


async def test_nothing_listens() -> None:
    """DESIGN §5: a refused connection is an outage, however often it is tried."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    provider = build_provider(ScorerSection(url=f"http://127.0.0.1:{port}", model="tiny"))
    with pytest.raises(ModelUnavailable, match="cannot connect") as caught:
        await provider.generate(call())
    assert type(caught.value) is ModelUnavailable
    assert (await provider.probe()).verdict == "unreachable"
    await provider.aclose()


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("127.0.0.1:11434", ""), ("http://h:99999", ""), ("http://[bad", ""), ("ftp://h", ""),
        ("http://.example", ""), ("", "two\nlines"),
    ],
)  # fmt: skip
async def test_a_url_or_key_that_cannot_be_used(url: str, key: str) -> None:
    """DESIGN §5: every request would fail alike, so it is waited out and no request's failure."""
    async with model_server(says(openai_reply())) as server:
        provider = build_provider(
            ScorerSection(provider="openai", url=url or server.url, model="tiny", api_key=key)
        )
        with pytest.raises(ModelMisconfigured, match="not a usable URL or key") as caught:
            await provider.generate(call())
        assert "lines" not in str(caught.value)
        assert server.asked == 0
        await provider.aclose()


async def test_an_endless_reply_is_not_read_on() -> None:
    """DESIGN §5: bounded while it comes, not by the deadline."""
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65_536)
            sent += 65_536

    async with serving("ollama", endless, max_response_bytes=4096) as (provider, _):
        with pytest.raises(ModelProtocolError, match="longer than 4096"):
            async with asyncio.timeout(5):
                await provider.generate(call(60))
        assert sent < 64 << 20


async def test_a_hang_ends_at_the_total_deadline() -> None:
    """DESIGN §5: neither silence nor a slow drip outlasts the deadline."""

    async def drips(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b" ")
            await asyncio.sleep(0.05)
        return response

    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(10)
        return web.Response()

    for answer in (drips, silent):
        async with serving("ollama", answer) as (provider, server):
            with pytest.raises(ModelTimeout, match=r"no answer within 0\.3 s"):
                async with asyncio.timeout(3):
                    await provider.generate(call(0.3))
            assert server.asked == 1


async def test_a_connection_broken_in_mid_call_is_not_tried_again() -> None:
    """DESIGN §5: the backend may still be generating, a second call would double its load."""

    async def hangs_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"mess')
        assert request.transport is not None
        request.transport.close()
        return response

    for answer in (hangs_up, half):
        async with serving("ollama", answer) as (provider, server):
            with pytest.raises(ConnectionLost):
                await provider.generate(call())
            assert server.asked == 1


async def test_the_canary_over_http() -> None:
    """DESIGN §5: obeyed, ignored and unreachable, and a new seed for every try."""
    for kind, reply in (("ollama", ollama_reply), ("openai", openai_reply)):
        async with serving(kind, says(reply('{"probe": 7351}'))) as (provider, server):
            assert (await provider.probe()).verdict == "obeyed"
            await provider.probe()
            bodies = [body for _, _, body in server.seen]
            seeds = [body.get("seed", body.get("options", {}).get("seed")) for body in bodies]
            assert seeds == [0, 1]
            assert "7351" in json.dumps(bodies[0])
            server.answers = [says(reply("Spring is mild."))]
            assert (await provider.probe()).verdict == "ignored"
            server.answers = [says({"error": "no such grammar"}, 400)]
            assert (await provider.probe()).verdict == "ignored"
            server.answers = [says({"error": "boom"}, 500)]
            assert (await provider.probe()).verdict == "unreachable"


async def test_an_endpoint_outlives_its_server() -> None:
    """X.6: server away, calls wait; server back on the same port, they are answered."""
    async with model_server(says(ollama_reply())) as server:
        url = server.url
    settings = ScorerSection(
        url=url, model="tiny", transport_attempts=1, failures_to_open=1, probe_initial_s=0.05
    )
    endpoint = build_endpoint(settings, build_provider(settings))
    waiting = asyncio.create_task(endpoint.generate(call()))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    back = ModelServer(answers=[says(ollama_reply())])
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", back.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(url.rpartition(":")[2]), reuse_address=True).start()
    async with asyncio.timeout(10):
        assert (await waiting).raw == '{"a": 1}'
    await endpoint.aclose()
    await runner.cleanup()


async def test_secrets_stay_out_of_settings_and_errors() -> None:
    """DESIGN §8: an API key is never printed."""
    settings = ScorerSection(provider="openai", api_key="sk-secret", url="http://127.0.0.1:9")
    assert "sk-secret" not in repr(settings) + str(settings.model_dump())
    async with serving("openai", says({"error": {"message": "bad key"}}, 401),
                       api_key="sk-secret") as (provider, _):  # fmt: skip
        with pytest.raises(ModelMisconfigured) as caught:
            await provider.generate(call())
        assert "sk-secret" not in f"{caught.value!r}"
