"""A model server in this process that does what a test tells it, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def ollama_reply(content: Any = '{"a": 1}', **changes: Any) -> dict[str, Any]:
    """A reply of /api/chat as Ollama words it."""
    return {
        "model": "tiny:latest",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": content},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 12,
        "eval_count": 5,
    } | changes


def openai_reply(content: Any = '{"a": 1}', finish: Any = "stop", **message: Any) -> dict[str, Any]:
    """A reply of /v1/chat/completions."""
    return {
        "id": "x",
        "object": "chat.completion",
        "model": "tiny-2026",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content} | message,
                "finish_reason": finish,
            }
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
    }


@dataclass
class ModelServer:
    """`answers` are given in turn, the last one for ever; `seen` holds (path, headers, body),
    `bodies` the bytes, and `identified` counts the questions for digest and context."""

    url: str = ""
    answers: list[Answer] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    identified: int = 0
    identity: Answer | None = None
    digest: str | None = "abc123"
    context: int = 4096

    @property
    def asked(self) -> int:
        return len(self.seen)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path in ("/api/tags", "/api/show"):
            self.identified += 1
            if self.identity is not None:
                return await self.identity(request)
        if request.path == "/api/tags":
            models = [{"name": "other:1", "digest": "no"}]
            if self.digest is not None:
                models.append({"name": "tiny:latest", "digest": self.digest})
            return web.json_response({"models": models})
        if request.path == "/api/show":
            return web.json_response({"model_info": {"llama.context_length": self.context}})
        body = await request.read()
        self.bodies.append(body)
        self.seen.append((request.path, dict(request.headers), json.loads(body)))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


def says(value: Any, status: int = 200, **headers: str) -> Answer:
    """Answers with JSON."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(value, status=status, headers=headers)

    return answer


def says_text(text: str | bytes, status: int = 200) -> Answer:
    """Answers with whatever text."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=text, status=status)

    return answer


@asynccontextmanager
async def model_server(*answers: Answer) -> AsyncIterator[ModelServer]:
    """The server on a free loopback port."""
    server = ModelServer(answers=list(answers))
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()
