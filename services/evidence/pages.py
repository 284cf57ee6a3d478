"""`GET /evidence`: what is kept, by request, wallet, type and time, a page at a time."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assay_runtime.failures import Pause
from assay_runtime.problem import problem
from assay_runtime.problem_handlers import problem_handlers
from services.evidence.domain import Row
from services.evidence.store import EvidenceStore, Query

_LIMIT = 100
_MOST = 1_000
_PAGE_BYTES = 8_388_608
_PARAMETERS = ("request_id", "wallet", "type", "since", "limit", "after")
_MOST_NUMBER = 2**63 - 1


class _BadParameter(ValueError):
    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


def build_pages(store: EvidenceStore, token: str) -> Starlette:
    """The pages; with a token set, requests need `Authorization: Bearer <token>`."""

    async def evidence(request: Request) -> Response:
        if token and not _authorised(request, token):
            return problem(
                401,
                "unauthorized",
                "a bearer token is needed to read evidence",
                headers={"WWW-Authenticate": "Bearer"},
            )
        try:
            query, after, limit = _asked(request)
        except _BadParameter as bad:
            return problem(400, "bad_parameter", str(bad), pointer=bad.name)
        try:
            page = await store.query(query, after, limit, _PAGE_BYTES)
        except Pause as outage:
            return problem(503, "store_unavailable", str(outage), headers={"Retry-After": "5"})
        body = {"items": [shown(cursor, row) for cursor, row in page.rows], "next": page.next}
        return JSONResponse(body)

    return Starlette(
        routes=[Route("/evidence", evidence), Route("/", evidence)],
        exception_handlers=problem_handlers(),
    )


def _asked(request: Request) -> tuple[Query, int, int]:
    """What the parameters ask for: filters, the cursor to go on behind, rows a page."""
    given: dict[str, str] = {}
    for name, text in request.query_params.multi_items():
        if name not in _PARAMETERS:
            raise _BadParameter(name[:64], f"no such parameter; there are {', '.join(_PARAMETERS)}")
        if name in given:
            raise _BadParameter(name, f"{name} is given more than once")
        if not text.isprintable():
            raise _BadParameter(name, f"{name} has characters that cannot be printed")
        given[name] = text
    query = Query(
        request_id=given.get("request_id"),
        wallet=given["wallet"].lower() if "wallet" in given else None,
        type=given.get("type"),
        since_ms=_since(given["since"]) if "since" in given else None,
    )
    return query, _number(given, "after", 0), min(_MOST, max(1, _number(given, "limit", _LIMIT)))


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > _MOST_NUMBER:
        raise _BadParameter(name, f"{name} is a whole number")
    return int(text)


def _authorised(request: Request, token: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), token.encode())


def _since(text: str) -> int:
    """Milliseconds since 1970 from those or from an ISO 8601 time, UTC unless it says otherwise."""
    if text.isascii() and text.isdecimal():
        return min(int(text[:20]), _MOST_NUMBER)
    try:
        when = datetime.fromisoformat(text)
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return int(when.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise _BadParameter(
            "since", "since is neither milliseconds since 1970 nor an ISO 8601 time"
        ) from error


def shown(cursor: int, row: Row) -> dict[str, Any]:
    """A row as JSON: `payload` is the value parsed where it is JSON, else `payload_base64`."""
    entry = row.entry
    item: dict[str, Any] = {
        "cursor": cursor,
        "shard": row.shard,
        "seq": row.seq,
        "event_id": entry.event_id,
        "type": entry.type,
        "request_id": entry.request_id,
        "wallet": entry.wallet,
        "timestamp_ms": entry.timestamp_ms,
        "topic": entry.topic,
        "partition": entry.partition,
        "offset": entry.offset,
        "leaf_hash": row.leaf_hash.hex(),
        "headers": {
            name: (value or b"").decode("utf-8", "replace") for name, value in entry.headers
        },
    }
    try:
        item["payload"] = json.loads(entry.value)
    except (ValueError, RecursionError):
        item["payload_base64"] = base64.b64encode(entry.value).decode()
    return item
