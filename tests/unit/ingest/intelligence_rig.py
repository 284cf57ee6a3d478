"""The Intelligence API on a real store, with a door, a publisher and a pipeline of our own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from assay.envelope import Message
from assay_gate.process import load_registry
from assay_runtime.failures import DeadLetter
from assay_runtime.seals import Seals
from services.ingest.asking import Asking
from services.ingest.intelligence.answers import error_handlers
from services.ingest.intelligence.api import IntelligenceApi
from services.ingest.keys.access import AccessRefused, Caller
from services.ingest.results import Waiting
from services.ingest.scores.api import ScoreApi
from services.ingest.settings import IngestSection
from services.ingest.store import Ending, RequestStore, Status

PROCESSES = Path(__file__).resolve().parents[3] / "schemas" / "processes"
PAGE = "/api/v1/intelligence"
BODY = {"input": {"text": "The parcel came late."}}


class OpenDoor:
    """Lets everybody in as who they say: `tenant` or `tenant:process`; counts who is inside."""

    def __init__(self) -> None:
        self.refusal: AccessRefused | None = None
        self.inside = 0

    @asynccontextmanager
    async def admit(
        self, headers: Mapping[str, str], process_id: str | None
    ) -> AsyncIterator[Caller]:
        if self.refusal is not None:
            raise self.refusal
        tenant, _, scope = headers["authorization"].removeprefix("Bearer ").partition(":")
        scopes = frozenset({scope or "*"})
        if process_id is not None and not scopes & {"*", process_id}:
            raise AccessRefused(403, "PROCESS_FORBIDDEN", "not covered")
        self.inside += 1
        try:
            yield Caller("id", "assay_key_id", tenant, scopes)
        finally:
            self.inside -= 1


class Publisher:
    """Keeps what it is given, or fails as told; `answers` is called with each message."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.traces: list[str] = []
        self.failure: Exception | None = None
        self.answers: Any = None

    def check(self, message: Message) -> None:
        if isinstance(self.failure, DeadLetter):
            raise self.failure

    async def publish(self, messages: Sequence[tuple[Message, str]]) -> None:
        if self.failure is not None:
            raise self.failure
        for message, trace in messages:
            self.sent.append(message)
            self.traces.append(trace)
            if self.answers is not None:
                await self.answers(message)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(message.value) for message in self.sent]


class Rig:
    def __init__(self, store: RequestStore, processes: Path = PROCESSES, **settings: Any) -> None:
        section = IngestSection(**{"generation_deadline_s": 0.1, **settings})
        self.store = store
        self.waiting = Waiting(store)
        self.door = OpenDoor()
        self.publisher = Publisher()
        asking = Asking(store, self.waiting, self.publisher, section.max_waiting)  # type: ignore[arg-type]
        self.app = FastAPI(exception_handlers=error_handlers(lambda: "fresh"))
        ScoreApi(section, asking).add_to(self.app)
        self.seals = Seals([b"k" * 32])
        registry = load_registry(processes)
        self.api = IntelligenceApi(section, registry, self.door, asking, self.seals)
        self.api.add_to(self.app)
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://assay")

    async def post(
        self, body: Any = BODY, process: str = "open_notes", tenant: str = "acme", **headers: str
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(
            f"{PAGE}/{process}/generate", content=content, headers=_headers(tenant, headers)
        )

    async def get(self, path: str, tenant: str = "acme", **headers: str) -> httpx.Response:
        return await self.http.get(path, headers=_headers(tenant, headers))

    def ends(self, status: Status, **outcome: Any) -> None:
        """Every request published from now on ends so."""

        async def answer(message: Message) -> None:
            request = json.loads(message.value)["meta"]["request_id"]
            body = json.dumps({"request_id": request, "status": status, **outcome}).encode()
            await self.store.conclude([Ending(request, status, body, owned_only=True)], 1)

        self.publisher.answers = answer

    def accepts(self, output: Any, **changes: Any) -> None:
        self.ends(
            "accepted",
            **{
                "output": output, "process_id": "open_notes", "process_version": "1.0.0",
                "attempts": 1, "model": "m", "fallback": None, "repairs": [], **changes,
            },
        )  # fmt: skip


def _headers(tenant: str, headers: Mapping[str, str]) -> dict[str, str]:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return {"authorization": f"Bearer {tenant}", **named}
