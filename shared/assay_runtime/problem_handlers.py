"""Errors that no page answers itself: unknown paths, wrong methods, bugs; as problem+json."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from assay_runtime.problem import problem

_CODES = {404: "not_found", 405: "method_not_allowed"}


def problem_handlers() -> dict[Any, Any]:
    """`exception_handlers` of a Starlette or FastAPI application."""
    return {HTTPException: _http_error, Exception: _bug}


async def _http_error(request: Request, error: HTTPException) -> Response:
    status = error.status_code
    detail = {
        404: f"there is no page {request.url.path[:200]}",
        405: f"{request.method} is not possible here",
    }.get(status, str(error.detail))
    return problem(status, _CODES.get(status, f"http_{status}"), detail, headers=error.headers)


async def _bug(request: Request, error: Exception) -> Response:
    return problem(500, "internal_error", "the service failed on this request; its log says why")
