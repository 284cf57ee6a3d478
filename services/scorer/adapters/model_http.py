"""HTTP to a model server: total deadline, transport retries, bounded replies, errors told apart.

httpx over aiohttp's transport (plain httpx costs ten times the CPU at 64 connections). Proxies
of the environment are not used.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import random
import time
from typing import Any

import aiohttp
import httpx
import stamina
from httpx_aiohttp import AiohttpTransport

from services.scorer.domain.provider import (
    ConnectionLost,
    ModelError,
    ModelMisconfigured,
    ModelProtocolError,
    ModelRefused,
    ModelServerError,
    ModelTimeout,
    ModelUnavailable,
)

_BUSY = frozenset((429, 502, 503))
_MISCONFIGURED = frozenset((401, 403, 404, 405))
_TIMED_OUT = frozenset((408, 504))
_RETRY_WAIT_S = 0.2
_RETRY_CAP_S = 10.0
_SHOWN = 200


class _Busy(ModelUnavailable):
    """429, 502 or 503; `retry_after` is the server's wish in seconds."""

    def __init__(self, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


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
        self._attempts = attempts
        self._max_bytes = max_response_bytes
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if api_key:
            headers["authorization"] = f"Bearer {api_key}"
        self._client = httpx.AsyncClient(
            base_url=url,
            headers=headers,
            transport=AiohttpTransport(limits=httpx.Limits(max_connections=connections + 4)),
            timeout=httpx.Timeout(None, connect=connect_s),
        )

    async def post(
        self, path: str, payload: dict[str, Any], deadline_s: float, attempts: int | None = None
    ) -> dict[str, Any]:
        """The reply's JSON object; `deadline_s` covers retries, waits and reading."""
        body = json.dumps(payload, ensure_ascii=False).encode(errors="replace")
        return await self._within(deadline_s, attempts or self._attempts, "POST", path, body)

    async def get(self, path: str, deadline_s: float) -> dict[str, Any]:
        """The reply's JSON object, asked for once."""
        return await self._within(deadline_s, 1, "GET", path, None)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _within(
        self, deadline_s: float, attempts: int, method: str, path: str, body: bytes | None
    ) -> dict[str, Any]:
        refused: ModelUnavailable | None = None
        retries = stamina.retry_context(
            on=_wait_before_retry,
            attempts=attempts,
            timeout=None,
            wait_initial=_RETRY_WAIT_S,
            wait_max=_RETRY_CAP_S,
            wait_jitter=_RETRY_WAIT_S,
        )
        try:
            async with asyncio.timeout(deadline_s):
                async for attempt in retries:
                    with attempt:
                        refused = None
                        try:
                            return await self._once(method, path, body)
                        except ModelUnavailable as error:
                            refused = error
                            raise
        except TimeoutError:
            # A deadline that ends a wait between tries is the outage's, not the model's.
            reason = refused or ModelTimeout(f"no answer within {deadline_s:g} s")
            raise reason from None
        raise ModelUnavailable("the request was never tried")  # pragma: no cover - attempts >= 1

    async def _once(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        try:
            async with self._client.stream(method, path, content=body) as response:
                data = await self._read(response)
        except httpx.TransportError as error:
            raise _transport_error(error) from error
        if response.status_code != 200:
            raise _status_error(response, data)
        return _object(data)

    async def _read(self, response: httpx.Response) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.aiter_bytes():
            chunks.append(chunk)
            size += len(chunk)
            if size > self._max_bytes:
                raise ModelProtocolError(f"the reply is longer than {self._max_bytes} bytes")
        return b"".join(chunks)


def _wait_before_retry(error: Exception) -> float | bool:
    """Whether to try again, and when: the server's Retry-After, capped, plus jitter."""
    if isinstance(error, _Busy):
        if error.retry_after is None:
            return True
        return min(error.retry_after, _RETRY_CAP_S) + random.uniform(0, _RETRY_WAIT_S)
    return isinstance(error, ModelUnavailable) and not isinstance(
        error, ConnectionLost | ModelMisconfigured
    )


def _transport_error(error: httpx.TransportError) -> ModelError:
    # The transport reports refused and broken connections alike; aiohttp's own error tells.
    cause = error.__cause__
    reason = _line(str(error)) or type(error).__name__
    if isinstance(error, httpx.UnsupportedProtocol):
        return ModelMisconfigured(f"not a usable URL: {reason}")
    if isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return ModelUnavailable(f"cannot connect: {reason}")
    return ConnectionLost(f"the connection broke: {reason}")


def _status_error(response: httpx.Response, data: bytes) -> ModelError:
    status = response.status_code
    reason = f"HTTP {status}: {_server_message(data)}"
    if status in _BUSY:
        return _Busy(reason, _retry_after(response.headers.get("retry-after")))
    if status in _MISCONFIGURED or 300 <= status < 400:
        return ModelMisconfigured(reason)
    if status in _TIMED_OUT:
        return ModelTimeout(reason)
    if 400 <= status < 500:
        return ModelRefused(reason)
    return ModelServerError(reason)


def _retry_after(value: str | None) -> float | None:
    """Seconds from a Retry-After header, in either of its forms."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ModelProtocolError(f"the reply is no JSON: {_line(_decoded(data))}") from None
    if not isinstance(value, dict):
        raise ModelProtocolError("the reply is no JSON object")
    if value.get("error"):
        raise ModelProtocolError(f"the reply is an error: {_server_message(data)}")
    return value


def _server_message(data: bytes) -> str:
    """What the server says, on one bounded line: `{"error": …}` of either protocol, or its text."""
    try:
        error = json.loads(data)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (ValueError, LookupError, TypeError, RecursionError):
        text = None
    return _line(text if isinstance(text, str) else _decoded(data))


def _decoded(data: bytes) -> str:
    return data[: 4 * _SHOWN].decode(errors="replace")


def _line(text: str) -> str:
    shown = "".join(char if char.isprintable() else " " for char in text[: 4 * _SHOWN])
    return " ".join(shown.split())[:_SHOWN]
