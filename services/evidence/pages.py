"""`GET /evidence`, `GET /attempts` and `POST /erasures`: what is kept, a page at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from assay_runtime.failures import Pause, Stop
from assay_runtime.problem import problem
from assay_runtime.problem_handlers import problem_handlers
from services.evidence.access import Access
from services.evidence.domain.attempts import ANSWERS, VERDICTS, Cause, Judged, verdicts_of
from services.evidence.erasing import erasing
from services.evidence.parameters import (
    MOST,
    BadParameter,
    fields_of,
    flag,
    given,
    place_of,
    query_of,
)
from services.evidence.showing import attempt_bytes, item_bytes, page_bytes
from services.evidence.store import EvidenceStore, Page, Query

_PAGE_BYTES = 8_388_608
# Redaction takes up to some 10 us a character of hostile text, less than 1 us of a wallet's data.
_REDACTED_BYTES = 524_288
_EVIDENCE = ("request_id", "wallet", "type", "since", "limit", "after", "fields", "full")
_ATTEMPTS = ("request_id", "limit", "after", "full")


class EvidencePages:
    """The pages of one store. What they show is made in one thread beside the event loop, so
    that a page that is hard to redact delays other readers and never the intake."""

    def __init__(self, store: EvidenceStore, access: Access) -> None:
        self._store = store
        self._access = access
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evidence-pages")

    async def evidence(self, request: Request) -> Response:
        asked = given(request, _EVIDENCE)
        full, fields = flag(asked, "full"), fields_of(asked)
        query, (after, limit) = query_of(asked), place_of(asked)
        if refusal := self._access.refuse_reading(request, full=full):
            return refusal
        most = _PAGE_BYTES if full or fields is not None else _REDACTED_BYTES
        page = await self._store.query(query, after, limit, most)
        erasures = await self._erasures(page)
        return await self._shown(
            lambda: page_bytes(
                [item_bytes(at, row, erasures, full=full, fields=fields) for at, row in page.rows],
                page.next,
                full=full,
            )
        )

    async def attempts(self, request: Request) -> Response:
        asked = given(request, _ATTEMPTS)
        full, (after, limit) = flag(asked, "full"), place_of(asked)
        if "request_id" not in asked:
            raise BadParameter("request_id", "request_id is needed")
        if refusal := self._access.refuse_reading(request, full=full):
            return refusal
        query = Query(request_id=asked["request_id"], type=ANSWERS)
        most = _PAGE_BYTES if full else _REDACTED_BYTES
        page = await self._store.query(query, after, limit, most)
        verdicts = await self._verdicts(query)
        erasures = await self._erasures(page)
        return await self._shown(
            lambda: page_bytes(
                [attempt_bytes(at, row, verdicts, erasures, full=full) for at, row in page.rows],
                page.next,
                full=full,
            )
        )

    async def _verdicts(self, query: Query) -> dict[Cause, Judged]:
        """The verdicts of a request without its texts, which a page of rows may hold many of."""
        found: dict[Cause, Judged] = {}
        for kind in VERDICTS:
            after: int | None = 0
            while after is not None:
                page = await self._store.query(replace(query, type=kind), after, MOST, _PAGE_BYTES)
                found = verdicts_of(row for _, row in page.rows) | found
                after = page.next
        return found

    async def _erasures(self, page: Page) -> dict[str, bytes]:
        names = {row.erased_by for _, row in page.rows if row.erased_by}
        return await self._store.values(names) if names else {}

    async def _shown(self, make: Callable[[], bytes]) -> Response:
        body = await asyncio.get_running_loop().run_in_executor(self._thread, make)
        return Response(body, media_type="application/json")


def build_pages(store: EvidenceStore, access: Access) -> Starlette:
    """The pages; `access` says who may read what."""
    pages = EvidencePages(store, access)
    return Starlette(
        routes=[
            Route("/evidence", _answered(pages.evidence)),
            Route("/", _answered(pages.evidence)),
            Route("/attempts", _answered(pages.attempts)),
            Route("/erasures", _answered(erasing(store, access)), methods=["POST"]),
        ],
        exception_handlers=problem_handlers(),
    )


_Endpoint = Callable[[Request], Awaitable[Response]]


def _answered(page: _Endpoint) -> _Endpoint:
    """The page, with bad parameters and outages answered as problems."""

    async def answer(request: Request) -> Response:
        try:
            return await page(request)
        except BadParameter as bad:
            return problem(400, "bad_parameter", str(bad), pointer=bad.name)
        except (Pause, Stop) as outage:
            return problem(503, "store_unavailable", str(outage), headers={"Retry-After": "5"})

    return answer
