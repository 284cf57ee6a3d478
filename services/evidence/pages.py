"""`GET /evidence`: what is kept, by request, wallet, type and time, a page at a time."""

from __future__ import annotations

import base64
import hmac
import json
from datetime import datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assay_runtime.failures import Pause
from assay_runtime.problem import problem
from services.evidence.domain import Row
from services.evidence.store import EvidenceStore, Query

_LIMIT = 100
_MOST = 1_000
_PARAMETERS = {"request_id", "wallet", "type", "since", "limit", "after"}


def build_pages(store: EvidenceStore, token: str) -> Starlette:
    """The pages; with a token set, requests need `Authorization: Bearer <token>`."""

    async def evidence(request: Request) -> Response:
        if token and not _authorised(request, token):
            return problem(401, "unauthorized", "a bearer token is needed to read evidence")
        given = request.query_params
        if unknown := given.keys() - _PARAMETERS:
            name = sorted(unknown)[0]
            return problem(400, "unknown_parameter", f"no parameter {name!r}", pointer=name)
        try:
            query = Query(
                request_id=given.get("request_id"),
                wallet=given["wallet"].lower() if "wallet" in given else None,
                type=given.get("type"),
                since_ms=_since(given["since"]) if "since" in given else None,
            )
        except ValueError:
            return problem(
                400,
                "bad_parameter",
                "since is neither milliseconds since 1970 nor an ISO 8601 time",
                pointer="since",
            )
        try:
            limit = min(_MOST, max(1, int(given.get("limit", _LIMIT))))
            after = int(given.get("after", 0))
        except ValueError:
            return problem(400, "bad_parameter", "limit and after are integers", pointer="limit")
        try:
            rows = await store.query(query, after, limit)
        except Pause as outage:
            return problem(503, "store_unavailable", str(outage))
        body = {
            "items": [shown(cursor, row) for cursor, row in rows],
            "next": rows[-1][0] if len(rows) == limit else None,
        }
        return JSONResponse(body)

    return Starlette(routes=[Route("/evidence", evidence), Route("/", evidence)])


def _authorised(request: Request, token: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), token.encode())


def _since(text: str) -> int:
    if text.isdigit():
        return int(text)
    return int(datetime.fromisoformat(text).timestamp() * 1000)


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
