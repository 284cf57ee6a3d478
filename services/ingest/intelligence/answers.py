"""Answers of the Intelligence API in the shape of seed 5 (SPEC S5.3):

    {"success": true, "data": …, "meta": {…}}
    {"success": false, "error": {"code", "message", "details": {"issues": [{"path", "message"}]}}}

`path` is a list of field names and indexes. `details` is there where it says something.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from assay.submission import SubmissionError
from assay_gate.chain import EXPRESSION_FAILED
from assay_gate.paths import parse_path
from assay_gate.verdict import GateError
from assay_runtime.problem_handlers import problem_handlers
from services.ingest.keys.access import AccessRefused
from services.ingest.store import Known

ROOT = "/api/v1"
REQUEST_ID = "X-Request-Id"
_RETRY_S = 5
_PROVIDER_RETRY_S = 30
_CODES = {
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "REQUEST_TIMEOUT",
    413: "PAYLOAD_TOO_LARGE",
    429: "RATE_LIMITED",
    503: "UNAVAILABLE",
}
_BODY_STATUS = {"too_slow": 408, "too_large": 413, "busy": 503}
# The scorer's code for a request that its topic does not take, and the validator's rule for one
# that could not be asked.
_TOO_LARGE = "request_too_large"
# Dead letters of a scorer or validator whose process folder is not the one here.
_OTHER_FOLDER = ("unknown_process", "unknown_process_version", "process_unknown")


class ApiError(Exception):
    """A refusal or failure as the caller sees it. `reason` is a finer code for programs."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        issues: Sequence[Mapping[str, Any]] = (),
        reason: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.issues = issues
        self.reason = reason
        self.headers = headers

    def response(self) -> JSONResponse:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        details: dict[str, Any] = {"reason": self.reason} if self.reason else {}
        if self.issues:
            details["issues"] = list(self.issues)
        if details:
            error["details"] = details
        return JSONResponse(
            {"success": False, "error": error}, status_code=self.status, headers=self.headers
        )


def issue(path: str | Sequence[str | int], message: str) -> dict[str, Any]:
    """One field and what is wrong with it; `path` as a list, or as the gate writes it: `$.a[0]`."""
    return {"path": _parts(path) if isinstance(path, str) else list(path), "message": message}


def _parts(path: str) -> list[str | int]:
    try:
        return parse_path(path)
    except GateError:  # a key with brackets in it
        return [path.removeprefix("$").removeprefix(".")]


def succeeded(data: Any, meta: Mapping[str, Any] | None = None) -> JSONResponse:
    body = {"success": True, "data": data}
    return JSONResponse(body | ({"meta": meta} if meta else {}))


def generated(known: Known) -> JSONResponse:
    """200 with the output, 202 with the place to ask again; ApiError where it ended otherwise."""
    process = known.owner.process if known.owner else None
    if known.outcome is None:
        place = f"{ROOT}/intelligence/requests/{known.request_id}"
        meta = {"request_id": known.request_id, "process_id": process, "status": "pending"}
        return JSONResponse(
            {"success": True, "data": None, "meta": {**meta, "url": place}},
            status_code=202,
            headers={"Location": place, "Retry-After": "2"},
        )
    outcome: dict[str, Any] = json.loads(known.outcome)
    if known.status != "accepted":
        raise _failure(known.status, outcome)
    named = ("request_id", "process_id", "process_version", "attempts", "model")
    told = {name: outcome[name] for name in ("repairs", "fallback") if outcome.get(name)}
    return succeeded(outcome["output"], {name: outcome[name] for name in named} | told)


def _failure(status: str, outcome: Mapping[str, Any]) -> ApiError:
    code = outcome.get("code")
    issues = [issue(e["path"], e["message"]) for e in outcome.get("errors", ())]
    if code == "provider_unavailable":
        return ApiError(
            503, "PROVIDER_UNAVAILABLE", "The model could not be reached; ask again with another "
            "Idempotency-Key", issues=issues, headers={"Retry-After": str(_PROVIDER_RETRY_S)},
        )  # fmt: skip
    if status == "rejected":
        message = "Failed to generate valid response after retry"
        rules = {error.get("rule") for error in outcome.get("errors", ())}
        if EXPRESSION_FAILED in rules:
            message = "A step that computes fields failed on this input"
        elif _TOO_LARGE in rules:
            message = "With this input the next question to the model would be too large"
        return ApiError(500, "OUTPUT_VALIDATION_FAILED", message, issues=issues)
    if code == _TOO_LARGE:
        return ApiError(413, "PAYLOAD_TOO_LARGE", "The request is too large", reason=code)
    if code == "invalid_input":
        for each in issues:
            each["path"] = each["path"][1:]  # the event's field `input`
        return ApiError(400, "VALIDATION_ERROR", "The input is not valid", issues=issues)
    if code in _OTHER_FOLDER:
        return ApiError(
            503, "UNAVAILABLE", "This version of the process is not served everywhere yet; ask "
            "again with another Idempotency-Key", reason=code,
            headers={"Retry-After": str(_RETRY_S)},
        )  # fmt: skip
    return ApiError(500, "INTERNAL_ERROR", "The request failed in the pipeline", reason=code)


def of_submission(error: SubmissionError) -> ApiError:
    """A body or header that cannot be taken; the pointer is one into the body."""
    path = [t.replace("~1", "/").replace("~0", "~") for t in error.pointer.split("/") if t]
    if path[:1] == ["input"]:
        path = path[1:]
    status = _BODY_STATUS.get(error.code, 400)
    if status != 400:
        headers = {"Retry-After": str(_RETRY_S)} if status == 503 else None
        return ApiError(status, _CODES[status], error.message, reason=error.code, headers=headers)
    found = issue([int(t) if t.isdecimal() else t for t in path], error.message)
    return ApiError(400, "VALIDATION_ERROR", "The request is not valid", issues=[found],
                    reason=error.code)  # fmt: skip


def of_access(error: AccessRefused) -> ApiError:
    return ApiError(error.status, _CODES[error.status], error.message, reason=error.code,
                    headers=error.headers)  # fmt: skip


def unavailable(message: str) -> ApiError:
    """Store or broker are away, or everything is full."""
    return ApiError(503, "UNAVAILABLE", message, headers={"Retry-After": str(_RETRY_S)})


def error_handlers(fresh_id: Any) -> dict[Any, Any]:
    """`exception_handlers` for both APIs: under ROOT in this module's shape, else problem+json."""
    elsewhere = problem_handlers()

    async def http_error(request: Request, error: HTTPException) -> Response:
        if not _is_here(request):
            return await _called(elsewhere[HTTPException], request, error)
        status = error.status_code
        path = request.url.path[:200]
        message = {404: f"There is no page {path}", 405: f"{request.method} is not possible here"}
        code = _CODES.get(status, f"HTTP_{status}")
        headers = {**(error.headers or {}), REQUEST_ID: fresh_id()}
        text = message.get(status, str(error.detail))
        return ApiError(status, code, text, headers=headers).response()

    async def bug(request: Request, error: Exception) -> Response:
        if not _is_here(request):
            return await _called(elsewhere[Exception], request, error)
        message = "The service failed on this request; its log says why"
        headers = {REQUEST_ID: fresh_id()}
        return ApiError(500, "INTERNAL_ERROR", message, headers=headers).response()

    return {HTTPException: http_error, Exception: bug}


async def _called(handler: Any, request: Request, error: Exception) -> Response:
    response: Response = await handler(request, error)
    return response


def _is_here(request: Request) -> bool:
    return request.url.path.startswith(f"{ROOT}/")
