"""The HTTP server: routes of both protocols, and a start and an end without surprises."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from deploy.dev.simulator import ollama_protocol, openai_protocol
from deploy.dev.simulator.control import ControlPages
from deploy.dev.simulator.generation import Generations
from deploy.dev.simulator.protocols import MODEL, Protocol
from deploy.dev.simulator.settings import Behaviour

_MAX_BODY = 8 * 1024 * 1024
_BACKLOG = 1024


class Simulator:
    """One simulator on host:port; port 0 picks a free one. Also an async context manager."""

    def __init__(
        self, behaviour: Behaviour | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._behaviour = behaviour or Behaviour()
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None
        self.generations: Generations

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    @property
    def url(self) -> str:
        """Base URL; native under /api, OpenAI-compatible under /v1."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def start(self) -> Simulator:
        """Listen; OSError if the port is taken."""
        self.generations = Generations(self._behaviour)
        app = web.Application(client_max_size=_MAX_BODY)
        app.add_routes(_routes(self.generations))
        # A client that goes away ends its call, or a hang would hold its slot for ever.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, backlog=_BACKLOG)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            raise
        self._port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        """End: calls under way, hanging ones too, have 0.2 s."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Simulator:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def _routes(generations: Generations) -> list[web.RouteDef]:
    def generating(protocol: Protocol) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await generations.handle(request, protocol)

        return handle

    def fixed(page: Any) -> Any:
        async def handle(_: web.Request) -> web.Response:
            return web.json_response(page)

        return handle

    pages = ControlPages(generations)
    return [
        web.post("/api/chat", generating(ollama_protocol.CHAT)),
        web.post("/api/generate", generating(ollama_protocol.GENERATE)),
        web.post("/v1/chat/completions", generating(openai_protocol.CHAT)),
        web.get("/", fixed({"model": MODEL, "note": "every answer is simulated"})),
        web.get("/api/version", fixed(ollama_protocol.VERSION)),
        web.get("/api/tags", fixed(ollama_protocol.TAGS)),
        web.post("/api/show", fixed(ollama_protocol.SHOW)),
        web.get("/v1/models", fixed(openai_protocol.MODELS)),
        web.get(f"/v1/models/{MODEL}", fixed(openai_protocol.CARD)),
        web.get("/control", pages.shown),
        web.post("/control", pages.changed),
        web.get("/stats", pages.counted),
    ]
