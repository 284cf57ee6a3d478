"""What evidence keeps, read over its HTTP API a page at a time."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode, urlsplit

from assay.errors import AssayError

_TIMEOUT_S = 60
_PAGE = 500
_MOST_BYTES = 64 * 1024 * 1024


class EvidenceUnreadable(AssayError):
    """Evidence did not answer, or not with pages."""


def evidence_items(
    url: str, event_type: str, *, since: str | None = None, token: str | None = None
) -> Iterator[dict[str, Any]]:
    """All items of one type, oldest first; `url` is the service's address, with or without
    /evidence. EvidenceUnreadable says why there are none."""
    base = url.rstrip("/").removesuffix("/evidence")
    if urlsplit(base).scheme not in ("http", "https"):
        raise EvidenceUnreadable(f"{url}: not an http(s) address")
    headers = {"accept": "application/json"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    after = "0"
    while True:
        asked = {"type": event_type, "limit": str(_PAGE), "after": after}
        if since:
            asked["since"] = since
        page = _page(f"{base}/evidence?{urlencode(asked)}", headers)
        yield from page["items"]
        if page["next"] is None:
            return
        after = str(page["next"])


def _page(address: str, headers: dict[str, str]) -> dict[str, Any]:
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
            body = response.read(_MOST_BYTES + 1)
        if len(body) > _MOST_BYTES:
            raise EvidenceUnreadable(f"{address}: a page of more than {_MOST_BYTES:,} bytes")
        page = json.loads(body)
        if not isinstance(page["items"], list) or "next" not in page:
            raise EvidenceUnreadable(f"{address}: no page of evidence")
    except urllib.error.HTTPError as error:
        detail = error.read(500).decode("utf-8", "replace")
        raise EvidenceUnreadable(f"{address}: {error.code} {detail}") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise EvidenceUnreadable(f"{address}: {reason}") from None
    except (ValueError, KeyError, TypeError):
        raise EvidenceUnreadable(f"{address}: no page of evidence") from None
    return dict(page)
