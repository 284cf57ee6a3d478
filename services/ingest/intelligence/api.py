"""The Intelligence API: any process over HTTP, for holders of API keys (SPEC S5.1–S5.4)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.requests import ClientDisconnect

from assay.events import GenerationRequested
from assay.submission import SubmissionError
from assay.topics import catalogue
from assay_gate.process import Process
from assay_gate.process_registry import ProcessRegistry
from assay_runtime.failures import DeadLetter, Pause, Stop
from assay_runtime.seals import TRUSTING, Seals
from services.ingest.asking import Asked, Asking, OtherContent, identified, wished_s
from services.ingest.bodies import Bodies
from services.ingest.domain.api_keys import EVERY_PROCESS
from services.ingest.intelligence import answers
from services.ingest.intelligence.answers import ROOT, ApiError
from services.ingest.intelligence.docs import GENERATE, PROCESSES, REQUEST
from services.ingest.intelligence.processes import described, is_callable
from services.ingest.intelligence.requests import (
    SOURCE,
    content_sha256,
    generation_request,
    read_input,
)
from services.ingest.keys.access import AccessRefused, Caller
from services.ingest.settings import IngestSection
from services.ingest.store import Known, Owner

log = structlog.get_logger()

_MOST_BYTES = catalogue()[GenerationRequested.type].max_bytes
_SHOWN = 128
# Only for the OpenAPI document: `Access` reads the key.
_KEYS = [
    Depends(HTTPBearer(auto_error=False, description="An API key of `assay keys create`")),
    Depends(APIKeyHeader(name="X-API-Key", auto_error=False)),
]


class Door(Protocol):
    """What `Access` is to this API."""

    def admit(
        self, headers: Mapping[str, str], process_id: str | None
    ) -> AbstractAsyncContextManager[Caller]: ...


@dataclass(slots=True)
class _Call:
    """What is known of a call while it is worked on, for its answer and its line in the log."""

    request_id: str
    process_id: str | None = None
    caller: Caller | None = None


Work = Callable[[Request, _Call], Awaitable[Response]]


class IntelligenceApi:
    """`POST …/{process_id}/generate`, `GET …/requests/{request_id}`, `GET …` under
    /api/v1/intelligence."""

    def __init__(
        self,
        section: IngestSection,
        processes: ProcessRegistry,
        door: Door,
        asking: Asking,
        seals: Seals = TRUSTING,
    ) -> None:
        self._deadline_s = section.generation_deadline_s
        self._limits = section.json_limits
        self._processes = processes
        self._door = door
        self._asking = asking
        self._seals = seals
        self._bodies = Bodies(min(section.max_body_bytes, _MOST_BYTES))

    def add_to(self, app: FastAPI) -> None:
        def route(path: str, method: str, work: Work, docs: dict[str, Any], name: str) -> None:
            async def page(request: Request) -> Response:
                return await self._answered(request, work)

            app.add_api_route(f"{ROOT}/intelligence{path}", page, methods=[method], name=name,
                              openapi_extra=docs, response_model=None, dependencies=_KEYS,
                              operation_id=docs["operationId"], tags=["intelligence"])  # fmt: skip

        route("", "GET", self._listed, PROCESSES, "the processes a key may use")
        route("/requests/{request_id}", "GET", self._looked_up, REQUEST, "what became of a request")
        route("/{process_id}/generate", "POST", self._generated, GENERATE, "ask a process")

    async def _answered(self, request: Request, work: Work) -> Response:
        """The answer with its request id, and one line in the log (SPEC S5.5)."""
        call = _Call(str(uuid.uuid4()))
        started = time.monotonic()
        code = None
        try:
            response = await work(request, call)
        except ClientDisconnect:
            response = Response(status_code=400)  # read by nobody
        except Exception as failure:
            error = _told(failure)
            code, response = error.code, error.response()
        response.headers[answers.REQUEST_ID] = call.request_id
        log.info(
            "intelligence_request",
            request_id=call.request_id,
            process_id=call.process_id,
            tenant_id=call.caller.tenant_id if call.caller else None,
            api_key=call.caller.prefix if call.caller else None,
            method=request.method,
            status=response.status_code,
            code=code,
            seconds=round(time.monotonic() - started, 3),
        )
        return response

    async def _generated(self, request: Request, call: _Call) -> Response:
        process_id = request.path_params["process_id"]
        call.process_id = process_id[:_SHOWN]
        async with self._door.admit(request.headers, process_id) as caller:
            call.caller = caller
            process = self._process(process_id)
            if self._asking.full:
                raise answers.unavailable("Too many requests are waiting for an answer")
            wait_s = wished_s(request, self._deadline_s)
            known = await self._submitted(request, call, process, caller.tenant_id)
            known = await self._asking.ended(request, known, wait_s)
        return answers.generated(known)

    async def _submitted(
        self, request: Request, call: _Call, process: Process, tenant: str
    ) -> Known:
        """Announced and published, or as the table knows it; the body is gone when this returns."""
        event_id, identity = identified(request, tenant, SOURCE)
        with self._bodies.room() as room:
            given = read_input(await room.read(request), process, self._limits)
            call.request_id = identity
            owner = Owner(tenant, process.id)
            asked = Asked(event_id, identity, content_sha256(process, given), owner)
            message = self._seals.put(generation_request(process, given, identity, tenant))
            return await self._asking.submit(request, asked, message)

    async def _looked_up(self, request: Request, call: _Call) -> Response:
        async with self._door.admit(request.headers, None) as caller:
            call.caller = caller
            asked = request.path_params["request_id"]
            try:
                identity = str(uuid.UUID(asked))
            except ValueError:
                raise ApiError(404, "NOT_FOUND", "A request id is a UUID") from None
            known = await self._asking.known(identity)
            owner = known.owner if known else None
            if known is None or owner is None or not _is_of(owner, caller):
                raise ApiError(404, "NOT_FOUND", f"No request {identity} is known here")
            call.request_id, call.process_id = identity, owner.process
        return answers.generated(known)

    async def _listed(self, request: Request, call: _Call) -> Response:
        async with self._door.admit(request.headers, None) as caller:
            call.caller = caller
        return answers.succeeded(
            [
                described(process)
                for process_id, process in sorted(self._processes.by_id.items())
                if is_callable(process) and _covers(caller, process_id)
            ]
        )

    def _process(self, process_id: str) -> Process:
        process = self._processes.current(process_id)
        if process is None:
            raise ApiError(404, "NOT_FOUND", f"There is no process {process_id[:_SHOWN]!r}")
        if not is_callable(process):
            raise ApiError(
                403, "FORBIDDEN", f"Process {process_id!r} makes signed scores; they are made from "
                "wallet events only: POST /score", reason="PROCESS_NOT_CALLABLE",
            )  # fmt: skip
        return process


def _covers(caller: Caller, process_id: str) -> bool:
    return EVERY_PROCESS in caller.scopes or process_id in caller.scopes


def _is_of(owner: Owner, caller: Caller) -> bool:
    return owner.tenant == caller.tenant_id and _covers(caller, owner.process)


def _told(failure: Exception) -> ApiError:
    """How the caller is told; what is none of these is a bug and stays one."""
    if isinstance(failure, ApiError):
        return failure
    if isinstance(failure, AccessRefused):
        return answers.of_access(failure)
    if isinstance(failure, SubmissionError):
        return answers.of_submission(failure)
    if isinstance(failure, OtherContent):
        return ApiError(422, "IDEMPOTENCY_CONFLICT", str(failure))
    if isinstance(failure, DeadLetter):
        return ApiError(413, "PAYLOAD_TOO_LARGE", str(failure))
    if isinstance(failure, Pause | TimeoutError | Stop):
        return answers.unavailable(str(failure) or "The broker did not answer in time")
    raise failure
