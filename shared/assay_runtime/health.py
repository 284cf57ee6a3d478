"""Health and metrics pages: `/livez` without dependencies, `/readyz`, `/metrics`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

Check = Callable[[], Awaitable[str | None]]

_CHECK_S = 3.0


class Health:
    """What stands in the way of being ready: named problems, and checks asked on each request."""

    def __init__(self) -> None:
        self._problems: dict[str, str] = {}
        self._checks: dict[str, Check] = {}
        self.note("service", "starting")

    def note(self, name: str, problem: str | None) -> None:
        """Set or clear a standing problem."""
        if problem is None:
            self._problems.pop(name, None)
        else:
            self._problems[name] = problem

    def add_checks(self, checks: Mapping[str, Check]) -> None:
        """Checks answer None when all is well, else the problem in words."""
        self._checks.update(checks)

    async def problems(self) -> dict[str, str]:
        found = dict(self._problems)
        for name, check in self._checks.items():
            try:
                async with asyncio.timeout(_CHECK_S):
                    problem = await check()
            except TimeoutError:
                problem = f"no answer within {_CHECK_S:g} s"
            except Exception as error:
                problem = repr(error)
            if problem is not None:
                found[name] = problem
        return found

    def routes(self) -> list[Route]:
        async def livez(request: Request) -> Response:
            return PlainTextResponse("ok")

        async def readyz(request: Request) -> Response:
            problems = await self.problems()
            body = {"ready": not problems, "problems": problems}
            return JSONResponse(body, status_code=503 if problems else 200)

        async def metrics(request: Request) -> Response:
            return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

        return [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics)]
