"""Who signs: `GET /public-key` and `GET /.well-known/jwks.json`."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assay.attestation import PublicKey, to_jwks
from assay_runtime.problem_handlers import problem_handlers


def build_pages(key: PublicKey, network: str) -> Starlette:
    """`/public-key` answers `{public_key: 33-byte hex, kid, network}`."""

    async def public_key(request: Request) -> Response:
        body = {"public_key": key.data.hex(), "kid": key.kid, "network": network}
        return JSONResponse(body)

    async def jwks(request: Request) -> Response:
        return JSONResponse(to_jwks([key]), media_type="application/jwk-set+json")

    return Starlette(
        routes=[Route("/public-key", public_key), Route("/.well-known/jwks.json", jwks)],
        exception_handlers=problem_handlers(),
    )
