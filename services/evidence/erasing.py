"""`POST /erasures`: the text of a request or a wallet goes, hashes and the fact stay."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from assay.errors import AssayError
from assay.wallet import parse_address
from services.evidence.access import Access
from services.evidence.domain.erasure import Erasure
from services.evidence.parameters import BadParameter
from services.evidence.store import EvidenceStore

log = structlog.get_logger()

_MOST_BODY = 16_384
_LENGTHS = {"request_id": 200, "wallet": 42, "reason": 500, "actor": 100}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def erasing(
    store: EvidenceStore, access: Access, now_ms: Callable[[], int] = _now_ms
) -> Callable[[Request], Awaitable[Response]]:
    """The page: {"request_id" or "wallet", "reason", "actor"?, "dry_run"?} to {"rows",
    "records"}; with `dry_run` rows are counted only. Doing it again erases what came since."""

    async def page(request: Request) -> Response:
        if refusal := access.refuse_erasure(request):
            return refusal
        asked = await _body(request)
        erasure = Erasure(
            request_id=asked.get("request_id"),
            wallet=asked.get("wallet"),
            reason=asked["reason"],
            actor=asked.get("actor", "unnamed"),
            at_ms=now_ms(),
        )
        if asked.get("dry_run"):
            rows = await store.erasable(erasure)
            return JSONResponse({"rows": rows, "records": [], "dry_run": True})
        erased = await store.erase(erasure)
        log.info("evidence_erased", rows=erased.rows, actor=erasure.actor, records=erased.records)
        return JSONResponse(
            {"rows": erased.rows, "records": list(erased.records), "dry_run": False}
        )

    return page


async def _body(request: Request) -> dict[str, Any]:
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > _MOST_BODY:
            raise BadParameter("/", f"the body is longer than {_MOST_BODY:,} bytes")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise BadParameter("/", "the body is no JSON") from None
    if not isinstance(body, dict):
        raise BadParameter("/", "the body is no JSON object")
    for name, value in body.items():
        if name == "dry_run":
            if not isinstance(value, bool):
                raise BadParameter("/dry_run", "dry_run is true or false")
            continue
        most = _LENGTHS.get(name)
        if most is None:
            raise BadParameter("/", f"there is no {name[:64]!r}; there are {', '.join(_LENGTHS)}")
        if not isinstance(value, str) or not value.strip() or len(value) > most:
            raise BadParameter(f"/{name}", f"{name} is a text of 1 to {most} characters")
        if not value.isprintable():
            raise BadParameter(f"/{name}", f"{name} has characters that cannot be printed")
    if ("request_id" in body) == ("wallet" in body):
        raise BadParameter("/request_id", "give either request_id or wallet")
    if "reason" not in body:
        raise BadParameter("/reason", "a reason is needed")
    if "wallet" in body:
        try:
            body["wallet"] = parse_address(body["wallet"]).key
        except AssayError as error:
            raise BadParameter("/wallet", str(error)) from None
    return body
