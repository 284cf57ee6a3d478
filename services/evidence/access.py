"""Who may read what evidence keeps, who may read it unredacted, who may erase (DESIGN §7)."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from assay_runtime.problem import problem

_CHALLENGE = {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True, slots=True)
class Access:
    """Bearer tokens; an empty one is unset. Without `read` anybody who can connect may read
    redacted pages; without `full_text` or `erasure` nobody may do that over HTTP."""

    read: str = field(default="", repr=False)
    full_text: str = field(default="", repr=False)
    erasure: str = field(default="", repr=False)

    def refuse_reading(self, request: Request, *, full: bool) -> Response | None:
        """The answer to a reader who may not; None where they may."""
        given = _bearer(request)
        if full:
            setting = "ASSAY_EVIDENCE__FULL_TEXT_TOKEN"
            return self._refused(given, self.full_text, "full text", setting)
        if not self.read or _same(given, self.read) or _same(given, self.full_text):
            return None
        return problem(
            401, "unauthorized", "a bearer token is needed to read evidence", headers=_CHALLENGE
        )

    def refuse_erasure(self, request: Request) -> Response | None:
        """The answer to somebody who may not erase; None where they may."""
        return self._refused(
            _bearer(request), self.erasure, "erasure", "ASSAY_EVIDENCE__ERASURE_TOKEN"
        )

    def _refused(self, given: str, wanted: str, what: str, setting: str) -> Response | None:
        if not wanted:
            detail = f"{what} is not available over HTTP here: {setting} is not set"
            return problem(403, "not_available", detail)
        if _same(given, wanted):
            return None
        if any(_same(given, token) for token in (self.read, self.full_text, self.erasure)):
            return problem(403, "forbidden", f"this token does not give {what}")
        return problem(
            401, "unauthorized", f"{what} needs the bearer token of {setting}", headers=_CHALLENGE
        )


def _bearer(request: Request) -> str:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _same(given: str, token: str) -> bool:
    return bool(token) and hmac.compare_digest(given.encode(), token.encode())
