"""What evidence keeps, read over its HTTP API a page at a time."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode

from assay.cli.evidence_access import FULL_TEXT, TOKEN_VARIABLE, is_http_address, local_token
from assay.errors import AssayError

_TIMEOUT_S = 60
_PAGE = 500
_MOST_BYTES = 64 * 1024 * 1024


class EvidenceUnreadable(AssayError):
    """Evidence did not answer, or not with what was asked for."""


class EvidenceClient:
    """One evidence service; `url` is its address, with or without /evidence.

    Without a token that of a stack which this user runs at that address is shown. Every method
    raises EvidenceUnreadable with the reason. Redirects are not followed: a token is for the
    address that it was given for.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self._base = url.rstrip("/").removesuffix("/evidence")
        if not is_http_address(self._base):
            raise EvidenceUnreadable(f"{url}: not an http(s) address")
        self._token = token
        self._opener = urllib.request.build_opener(_NoRedirect)

    def items(
        self,
        event_type: str,
        *,
        since: str | None = None,
        full: bool = False,
        fields: Sequence[str] = (),
    ) -> Iterator[dict[str, Any]]:
        """All items of one type, oldest first; of their payloads these members, or all."""
        asked = {"type": event_type, "limit": str(_PAGE)}
        if since:
            asked["since"] = since
        if fields:
            asked["fields"] = ",".join(fields)
        yield from self._pages("/evidence", asked, full=full)

    def attempts(self, request_id: str, *, full: bool = False) -> Iterator[dict[str, Any]]:
        """The attempt records of a request, oldest first."""
        yield from self._pages("/attempts", {"request_id": request_id}, full=full)

    def erase(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """`POST /erasures`; the token must be that of erasure."""
        body = json.dumps(asked).encode()
        return self._answer("/erasures", self._token, body)

    def _pages(self, path: str, asked: dict[str, str], *, full: bool) -> Iterator[dict[str, Any]]:
        token = self._token or local_token(self._base, FULL_TEXT)
        if full:
            asked = {**asked, "full": "true"}
        after = "0"
        while True:
            page = self._answer(f"{path}?{urlencode({**asked, 'after': after})}", token)
            if not isinstance(page.get("items"), list) or "next" not in page:
                raise EvidenceUnreadable(f"{self._base}{path}: no page of evidence")
            if full and page.get("redacted") is not False:
                raise EvidenceUnreadable(f"{self._base}{path}: only redacted text is available")
            yield from page["items"]
            if page["next"] is None:
                return
            after = str(page["next"])

    def _answer(self, path: str, token: str | None, body: bytes | None = None) -> dict[str, Any]:
        address = self._base + path
        headers = {"accept": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            request = urllib.request.Request(address, data=body, headers=headers)  # noqa: S310
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                text = response.read(_MOST_BYTES + 1)
            if len(text) > _MOST_BYTES:
                raise EvidenceUnreadable(f"{address}: a page of more than {_MOST_BYTES:,} bytes")
            return dict(json.loads(text))
        except urllib.error.HTTPError as error:
            raise EvidenceUnreadable(f"{address}: {_refusal(error)}") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise EvidenceUnreadable(f"{address}: {reason}") from None
        except (ValueError, TypeError):
            raise EvidenceUnreadable(f"{address}: no answer of evidence") from None


def _refusal(error: urllib.error.HTTPError) -> str:
    """Status and reason, and what to do about a missing token."""
    text = error.read(2_000).decode("utf-8", "replace")
    try:
        detail = str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        detail = text[:500]
    hint = f" (--token or {TOKEN_VARIABLE})" if error.code in (401, 403) else ""
    return f"{error.code} {detail}{hint}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
