"""`application/problem+json` (RFC 9457) for every service's pages."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    pointer: str | None = None,
    headers: Mapping[str, str] | None = None,
    **extra: Any,
) -> JSONResponse:
    """A problem answer. `code` is stable and for programs, `detail` is for people, `pointer`
    names the field (JSON pointer) or parameter at fault."""
    body: dict[str, Any] = {
        "type": f"urn:assay:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        **extra,
    }
    if pointer is not None:
        body["errors"] = [{"pointer": pointer, "detail": detail}]
    return JSONResponse(
        body, status_code=status, headers=headers, media_type="application/problem+json"
    )
