"""The public HTTP API: one more publisher of the input topic, which can wait for the answer."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from assay.envelope import Message
from assay.events import WalletEventSubmitted
from assay.ids import request_id
from assay.submission import SubmissionError
from assay_runtime.failures import DeadLetter, Pause, Stop
from assay_runtime.problem import problem
from assay_runtime.problem_handlers import problem_handlers
from assay_runtime.publisher import Publisher
from assay_runtime.tracing import new_trace, parse_traceparent
from services.ingest.answers import answer, may_be_tried_again, refused, unavailable
from services.ingest.api_docs import GET_SCORE, GET_SCORES, POST_SCORE
from services.ingest.bodies import Bodies, Room
from services.ingest.domain.submission import (
    Submission,
    parse_submission,
    submission_for_address,
)
from services.ingest.results import Waiting
from services.ingest.settings import IngestSection
from services.ingest.store import Known, RequestStore

log = structlog.get_logger()

SOURCE = "/assay/http"
_MAX_KEY = 255
_PUBLISH_S = 10.0


class ScoreApi:
    """`POST /score`, `GET /score?address=`, `GET /scores/{request_id}` (SPEC S3.8)."""

    def __init__(
        self,
        section: IngestSection,
        tenant: str,
        store: RequestStore,
        waiting: Waiting,
        publisher: Publisher,
    ) -> None:
        self._section = section
        self._tenant = tenant
        self._store = store
        self._waiting = waiting
        self._publisher = publisher
        self._bodies = Bodies(section.max_body_bytes)
        self._broken: Stop | None = None
        self._broke = asyncio.Event()

    def app(self) -> FastAPI:
        app = FastAPI(
            title="Assay",
            version="1",
            description="Wallet events in, checked and signed reputation scores out.",
            exception_handlers=problem_handlers(),
        )
        app.add_api_route("/score", self._post_score, methods=["POST"], openapi_extra=POST_SCORE,
                          response_model=None, name="score a wallet")  # fmt: skip
        app.add_api_route("/score", self._get_score, methods=["GET"], openapi_extra=GET_SCORE,
                          response_model=None, name="score a wallet by address")  # fmt: skip
        app.add_api_route("/scores/{request}", self._get_scores, methods=["GET"],
                          openapi_extra=GET_SCORES, response_model=None,
                          name="what became of a request")  # fmt: skip
        return app

    async def watch(self) -> None:
        """Raises Stop once the publisher is beyond repair; only a restart helps then."""
        await self._broke.wait()
        if self._broken is not None:
            raise self._broken

    async def _post_score(self, request: Request) -> Response:
        async def read(room: Room) -> Submission:
            return parse_submission(await room.read(request), self._section.json_limits)

        return await self._scored(request, read)

    async def _get_score(self, request: Request) -> Response:
        async def read(room: Room) -> Submission:
            return submission_for_address(_only(request, "address"))

        return await self._scored(request, read)

    async def _get_scores(self, request: Request) -> Response:
        asked = request.path_params["request"]
        try:
            known = await self._store.status(str(uuid.UUID(asked)))
        except ValueError:
            return problem(404, "request_unknown", "a request id is a UUID", pointer="request")
        except Pause as outage:
            return unavailable(outage)
        if known is None:
            return problem(404, "request_unknown", f"no request {uuid.UUID(asked)} is known here")
        return answer(known)

    async def _scored(
        self, request: Request, read: Callable[[Room], Awaitable[Submission]]
    ) -> Response:
        if len(self._waiting) >= self._section.max_waiting:
            return problem(503, "busy", "too many requests are waiting for a score",
                           headers={"Retry-After": "5"})  # fmt: skip
        try:
            known = await self._submitted(request, read)
            if isinstance(known, Response):
                return known
            if known.outcome is None:
                ended = await self._until_gone(request, known.request_id)
                known = ended or known
        except SubmissionError as error:
            return refused(error)
        except (Pause, TimeoutError) as error:
            return unavailable(error)
        except Stop as error:
            self._broken = error
            self._broke.set()
            return unavailable(error)
        except DeadLetter as error:
            return problem(413, error.code, str(error))
        except ClientDisconnect:
            return Response(status_code=400)  # read by nobody
        return answer(known)

    async def _submitted(
        self, request: Request, read: Callable[[Room], Awaitable[Submission]]
    ) -> Known | Response:
        """Announce and publish. A repeat of an ended request is answered from the table. The
        body and what was read from it are gone when this returns: the wait can be long."""
        key = request.headers.get("idempotency-key")
        if key is not None and not (0 < len(key) <= _MAX_KEY and key.isprintable()):
            raise SubmissionError(
                "bad_idempotency_key",
                "Idempotency-Key",
                f"Idempotency-Key has 1 to {_MAX_KEY} printable characters",
            )
        with self._bodies.room() as room:
            submission = await read(room)
            self._check_data(submission)
            event_id = key or str(uuid.uuid4())
            identity = request_id(self._tenant, SOURCE, event_id)
            content = submission.content_sha256
            known = await self._store.announce(identity, content, time.time_ns() // 1_000_000)
            if known.content_sha256 != content:
                return problem(422, "idempotency_conflict",
                               "this Idempotency-Key was used before with other content",
                               pointer="Idempotency-Key", request_id=identity)  # fmt: skip
            if may_be_tried_again(known):
                await self._store.reopen(identity)
                known = replace(known, status="pending", outcome=None)
            if known.outcome is None:
                await self._publish(request, submission, event_id, identity)
        return known

    async def _until_gone(self, request: Request, identity: str) -> Known | None:
        """The ended request; None after the deadline, or when the client has gone: what nobody
        waits for must not hold one of the places."""
        outcome = asyncio.create_task(self._waiting.outcome(identity, self._deadline(request)))
        gone = asyncio.create_task(_disconnected(request))
        try:
            await asyncio.wait((outcome, gone), return_when=asyncio.FIRST_COMPLETED)
            return await outcome if outcome.done() else None
        finally:
            outcome.cancel()
            gone.cancel()
            await asyncio.gather(outcome, gone, return_exceptions=True)

    async def _publish(
        self, request: Request, submission: Submission, event_id: str, identity: str
    ) -> None:
        parent = parse_traceparent(request.headers.get("traceparent"))
        span = parent.child() if parent else new_trace()
        message = Message(
            WalletEventSubmitted.type,
            submission.key.encode(),
            _sent(submission),
            (
                ("content-type", b"application/json"),
                ("ce_specversion", b"1.0"),
                ("ce_id", event_id.encode()),
                ("ce_source", SOURCE.encode()),
                ("ce_type", WalletEventSubmitted.type.encode()),
                ("ce_subject", submission.key.encode()),
            ),
        )
        async with asyncio.timeout(_PUBLISH_S):
            await self._publisher.publish([(message, span.traceparent)])
        log.info("submission_published", request_id=identity, trace_id=span.trace_id)

    def _check_data(self, submission: Submission) -> None:
        if submission.evm_data is not None and not self._section.inline_evm_data:
            raise SubmissionError(
                "inline_data_disabled", "/evm_data", "inline evm_data is switched off here"
            )
        if submission.evm_data is None and self._section.aggregator_url is None:
            raise SubmissionError(
                "missing_field", "/evm_data", "evm_data is missing and no aggregator is configured"
            )

    def _deadline(self, request: Request) -> float:
        """The configured deadline, or less where `Prefer: wait=SECONDS` (RFC 7240) asks so."""
        for preference in request.headers.get("prefer", "").split(","):
            name, _, seconds = preference.strip().partition("=")
            if name.lower() == "wait" and seconds.isdigit():
                return min(float(seconds), self._section.reply_deadline_s)
        return self._section.reply_deadline_s


async def _disconnected(request: Request) -> None:
    """Returns when the client has closed the connection; the body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _only(request: Request, name: str) -> str:
    """The one query parameter of that name; others would be silently without effect."""
    given = request.query_params
    if unknown := [key for key in given if key != name]:
        raise SubmissionError("unknown_parameter", unknown[0], f"no parameter {unknown[0]!r}")
    values = given.getlist(name)
    if len(values) != 1:
        raise SubmissionError("missing_field", name, f"the parameter {name} is needed once")
    return values[0]


def _sent(submission: Submission) -> bytes:
    """The submission as published: what was checked, and nothing else of the body."""
    document: dict[str, Any] = {"address": submission.address}
    if submission.questionnaire:
        document["questionnaire"] = submission.questionnaire
    if submission.evm_data is not None:
        document["evm_data"] = submission.evm_data
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
