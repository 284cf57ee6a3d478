"""The public HTTP API: one more publisher of the input topic, which can wait for the answer."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from assay.envelope import Message
from assay.events import WalletEventSubmitted
from assay.ids import request_id
from assay.submission import SubmissionError
from assay_runtime.failures import DeadLetter, Pause, Stop
from assay_runtime.problem import problem
from assay_runtime.publisher import Publisher
from assay_runtime.tracing import new_trace, parse_traceparent
from services.ingest.answers import answer
from services.ingest.api_docs import GET_SCORE, GET_SCORES, POST_SCORE
from services.ingest.domain.submission import (
    Submission,
    parse_submission,
    submission_for_address,
)
from services.ingest.results import Waiting
from services.ingest.settings import IngestSection
from services.ingest.store import RequestStore

SOURCE = "/assay/http"
_MAX_KEY = 255
_PUBLISH_S = 10.0
_UNREADABLE = {"invalid_json", "invalid_utf8", "empty"}


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

    def app(self) -> FastAPI:
        app = FastAPI(
            title="Assay",
            version="1",
            description="Wallet events in, checked and signed reputation scores out.",
        )
        app.add_api_route("/score", self._post_score, methods=["POST"], openapi_extra=POST_SCORE,
                          response_model=None, name="score a wallet")  # fmt: skip
        app.add_api_route("/score", self._get_score, methods=["GET"], openapi_extra=GET_SCORE,
                          response_model=None, name="score a wallet by address")  # fmt: skip
        app.add_api_route("/scores/{request}", self._get_scores, methods=["GET"],
                          openapi_extra=GET_SCORES, response_model=None,
                          name="what became of a request")  # fmt: skip
        return app

    async def _post_score(self, request: Request) -> Response:
        try:
            body = await self._body(request)
            submission = parse_submission(body, self._section.json_limits)
            self._check_data(submission)
        except SubmissionError as error:
            return _refused(error)
        return await self._score(request, submission, _sent(submission))

    async def _get_score(self, request: Request) -> Response:
        try:
            submission = submission_for_address(_only(request, "address"))
            self._check_data(submission)
        except SubmissionError as error:
            return _refused(error)
        return await self._score(request, submission, _sent(submission))

    async def _get_scores(self, request: Request) -> Response:
        asked = request.path_params["request"]
        try:
            known = await self._store.get(str(uuid.UUID(asked)))
        except ValueError:
            return problem(404, "request_unknown", "a request id is a UUID", pointer="request")
        except Pause as outage:
            return _away(outage)
        if known is None:
            return problem(404, "request_unknown", f"no request {asked} is known here")
        return answer(known, known.request_id)

    async def _score(self, request: Request, submission: Submission, value: bytes) -> Response:
        """Announce, publish, wait; a repeat of an ended request is answered from the table."""
        key = request.headers.get("idempotency-key")
        if key is not None and not (0 < len(key) <= _MAX_KEY and key.isprintable()):
            return problem(400, "bad_idempotency_key",
                           f"Idempotency-Key has 1 to {_MAX_KEY} printable characters",
                           pointer="Idempotency-Key")  # fmt: skip
        if len(self._waiting) >= self._section.max_waiting:
            return problem(503, "busy", "too many requests are waiting for a score",
                           headers={"Retry-After": "5"})  # fmt: skip
        event_id = key or str(uuid.uuid4())
        identity = request_id(self._tenant, SOURCE, event_id)
        content = submission.content_sha256
        try:
            known = await self._store.announce(identity, content, time.time_ns() // 1_000_000)
            if known.content_sha256 != content:
                return problem(422, "idempotency_conflict",
                               "this Idempotency-Key was used before with other content",
                               pointer="Idempotency-Key", request_id=identity)  # fmt: skip
            if known.outcome is None:
                await self._publish(request, submission, event_id, value)
                ended = await self._waiting.outcome(identity, self._deadline(request))
                known = ended or known
        except Pause as outage:
            return _away(outage)
        except (TimeoutError, Stop) as error:
            return _away(error)
        except DeadLetter as error:
            return problem(413, error.code, str(error))
        return answer(known, identity)

    async def _publish(
        self, request: Request, submission: Submission, event_id: str, value: bytes
    ) -> None:
        parent = parse_traceparent(request.headers.get("traceparent"))
        span = parent.child() if parent else new_trace()
        message = Message(
            WalletEventSubmitted.type,
            submission.key.encode(),
            value,
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

    async def _body(self, request: Request) -> bytes:
        """The request's body; larger than the limit is refused before it is read in full."""
        limit = self._section.max_body_bytes
        declared = request.headers.get("content-length", "")
        too_large = SubmissionError("too_large", "", f"the body is larger than {limit:,} bytes")
        if declared.isdigit() and int(declared) > limit:
            raise too_large
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise too_large
        return bytes(body)

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


def _refused(error: SubmissionError) -> JSONResponse:
    status = 413 if error.code == "too_large" else 400 if error.code in _UNREADABLE else 422
    return problem(status, error.code, error.message, pointer=error.pointer)


def _away(error: Exception) -> JSONResponse:
    return problem(503, "unavailable", str(error) or "the broker did not answer in time",
                   headers={"Retry-After": "5"})  # fmt: skip
