"""HTTP to a model server: total deadline, transport retries, bounded replies.

aiohttp directly: httpx over aiohttp's transport, which the design foresaw, costs a call three times
the CPU (tests/bench/http_client.py). Proxies and credentials of the environment are not used.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from typing import Any

import aiohttp
import structlog

from services.scorer.adapters.model_errors import (
    Busy,
    reply_object,
    status_error,
    transport_error,
)
from services.scorer.domain.provider import (
    ConnectionLost,
    ModelMisconfigured,
    ModelProtocolError,
    ModelTimeout,
    ModelUnavailable,
)

log = structlog.get_logger()

_RETRY_WAIT_S = 0.2
_RETRY_CAP_S = 10.0
# Below the 5 s after which uvicorn (vLLM and others) drops an idle connection: a request sent into
# a connection that is being closed would count as lost.
_KEEP_ALIVE_S = 4.0
_TEXT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ModelHttp:
    """Requests to one model server; safe for concurrent use. Raises ModelError only.

    `attempts` counts the tries of one request on connection errors, 429, 502 and 503; nothing
    else is tried again here, because a second generation doubles the backend's load.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str = "",
        connections: int = 64,
        attempts: int = 3,
        connect_s: float = 5.0,
        max_response_bytes: int = 262_144,
    ) -> None:
        self._url = url
        self._connections = connections
        self._attempts = attempts
        self._connect_s = connect_s
        self._max_bytes = max_response_bytes
        self._headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self,
        path: str,
        payload: Mapping[str, Any],
        deadline_s: float,
        *,
        written: Mapping[str, str] | None = None,
        attempts: int | None = None,
    ) -> dict[str, Any]:
        """The reply's JSON object; `deadline_s` covers retries, waits and reading.

        `written` holds members of the payload that are JSON text already.
        """
        text = _TEXT(payload)
        if written:
            members = ",".join(f'"{name}":{member}' for name, member in written.items())
            text = f"{text[:-1]},{members}}}"
        body = text.encode(errors="replace")
        return await self._within(deadline_s, attempts or self._attempts, "POST", path, body)

    async def get(self, path: str, deadline_s: float) -> dict[str, Any]:
        """The reply's JSON object, asked for once."""
        return await self._within(deadline_s, 1, "GET", path, None)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _within(
        self, deadline_s: float, attempts: int, method: str, path: str, body: bytes | None
    ) -> dict[str, Any]:
        refused: ModelUnavailable | None = None
        tried = 0
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    try:
                        return await self._once(method, path, body)
                    except ModelUnavailable as error:
                        tried += 1
                        if tried >= attempts or not _worth_another_try(error):
                            raise
                        refused = error
                    wait = _wait_before_try(tried, refused)
                    log.warning("model_call_tried_again", path=path, wait_s=round(wait, 2),
                                reason=str(refused))  # fmt: skip
                    await asyncio.sleep(wait)
                    refused = None
        except TimeoutError:
            # A deadline that ends a wait between tries is the outage's, not the model's.
            raise refused or ModelTimeout(f"no answer within {deadline_s:g} s") from None

    async def _once(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        session = self._session or self._open()
        try:
            async with session.request(
                method, self._url + path, data=body, allow_redirects=False
            ) as response:
                data = await self._read(response.content)
        except (aiohttp.ClientError, ValueError) as error:
            raise transport_error(error) from error
        if response.status != 200:
            raise status_error(response.status, response.headers.get("retry-after"), data)
        return reply_object(data)

    async def _read(self, content: aiohttp.StreamReader) -> bytearray:
        """The reply to its end; one that is longer than allowed is not read any further."""
        data = bytearray()
        while not content.at_eof():
            data += await content.readany()
            if len(data) > self._max_bytes:
                raise ModelProtocolError(f"the reply is longer than {self._max_bytes} bytes")
        return data

    def _open(self) -> aiohttp.ClientSession:
        """The one session, opened by the first request because it belongs to the running loop."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections + 4, keepalive_timeout=_KEEP_ALIVE_S
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
        )
        return self._session


def _worth_another_try(error: ModelUnavailable) -> bool:
    return not isinstance(error, ConnectionLost | ModelMisconfigured)


def _wait_before_try(tried: int, refused: ModelUnavailable) -> float:
    """Seconds before the next try: the server's Retry-After or a doubling wait, plus jitter."""
    wish = refused.retry_after if isinstance(refused, Busy) else None
    wait = _RETRY_WAIT_S * 2 ** (tried - 1) if wish is None else wish
    return min(wait, _RETRY_CAP_S) + random.uniform(0, _RETRY_WAIT_S)
