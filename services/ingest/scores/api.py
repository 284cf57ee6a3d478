"""The public HTTP API: one more publisher of the input topic, which can wait for the answer."""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from assay.envelope import Message
from assay.events import WalletEventSubmitted
from assay.submission import SubmissionError
from assay_runtime.failures import DeadLetter, Pause, Stop
from assay_runtime.problem import problem
from services.ingest.asking import Asked, Asking, OtherContent, identified, wished_s
from services.ingest.bodies import Bodies, Room
from services.ingest.domain.submission import (
    Submission,
    parse_submission,
    submission_for_address,
)
from services.ingest.scores.answers import answer, may_be_tried_again, refused, unavailable
from services.ingest.scores.docs import GET_SCORE, GET_SCORES, POST_SCORE
from services.ingest.settings import IngestSection
from services.ingest.store import Known

SOURCE = "/assay/http"


class ScoreApi:
    """`POST /score`, `GET /score?address=`, `GET /scores/{request_id}` (SPEC S3.8)."""

    def __init__(self, section: IngestSection, asking: Asking) -> None:
        self._section = section
        self._asking = asking
        self._bodies = Bodies(section.max_body_bytes)

    def add_to(self, app: FastAPI) -> None:
        app.add_api_route("/score", self._post_score, methods=["POST"], openapi_extra=POST_SCORE,
                          response_model=None, name="score a wallet")  # fmt: skip
        app.add_api_route("/score", self._get_score, methods=["GET"], openapi_extra=GET_SCORE,
                          response_model=None, name="score a wallet by address")  # fmt: skip
        app.add_api_route("/scores/{request}", self._get_scores, methods=["GET"],
                          openapi_extra=GET_SCORES, response_model=None,
                          name="what became of a request")  # fmt: skip

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
            known = await self._asking.known(str(uuid.UUID(asked)))
        except ValueError:
            return problem(404, "request_unknown", "a request id is a UUID", pointer="request")
        except (Pause, Stop) as outage:
            return unavailable(outage)
        # What came through the Intelligence API is its tenant's; nobody is asked for a key here.
        if known is None or known.owner is not None:
            return problem(404, "request_unknown", f"no request {uuid.UUID(asked)} is known here")
        return answer(known)

    async def _scored(
        self, request: Request, read: Callable[[Room], Awaitable[Submission]]
    ) -> Response:
        if self._asking.full:
            return problem(503, "busy", "too many requests are waiting for a score",
                           headers={"Retry-After": "5"})  # fmt: skip
        wait_s = wished_s(request, self._section.reply_deadline_s)
        try:
            known = await self._submitted(request, read)
            known = await self._asking.ended(request, known, wait_s)
        except SubmissionError as error:
            return refused(error)
        except OtherContent as error:
            return problem(422, "idempotency_conflict", str(error), pointer="Idempotency-Key",
                           request_id=error.request_id)  # fmt: skip
        except (Pause, TimeoutError, Stop) as error:
            return unavailable(error)
        except DeadLetter as error:
            return problem(413, error.code, str(error))
        except ClientDisconnect:
            return Response(status_code=400)  # read by nobody
        return answer(known)

    async def _submitted(
        self, request: Request, read: Callable[[Room], Awaitable[Submission]]
    ) -> Known:
        """Announced and published, or as the table knows it. The body and what was read from it
        are gone when this returns: the wait can be long."""
        event_id, identity = identified(request, self._section.tenant, SOURCE)
        with self._bodies.room() as room:
            submission = await read(room)
            self._check_data(submission)
            asked = Asked(event_id, identity, submission.content_sha256)
            return await self._asking.submit(
                request, asked, _message(submission, event_id), may_be_tried_again
            )

    def _check_data(self, submission: Submission) -> None:
        if submission.evm_data is not None and not self._section.inline_evm_data:
            raise SubmissionError(
                "inline_data_disabled", "/evm_data", "inline evm_data is switched off here"
            )
        if submission.evm_data is None and self._section.aggregator_url is None:
            raise SubmissionError(
                "missing_field", "/evm_data", "evm_data is missing and no aggregator is configured"
            )


def _only(request: Request, name: str) -> str:
    """The one query parameter of that name; others would be silently without effect."""
    given = request.query_params
    if unknown := [key for key in given if key != name]:
        raise SubmissionError("unknown_parameter", unknown[0], f"no parameter {unknown[0]!r}")
    values = given.getlist(name)
    if len(values) != 1:
        raise SubmissionError("missing_field", name, f"the parameter {name} is needed once")
    return values[0]


def _message(submission: Submission, event_id: str) -> Message:
    return Message(
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


def _sent(submission: Submission) -> bytes:
    """The submission as published: what was checked, and nothing else of the body."""
    document: dict[str, Any] = {"address": submission.address}
    if submission.questionnaire:
        document["questionnaire"] = submission.questionnaire
    if submission.evm_data is not None:
        document["evm_data"] = submission.evm_data
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
