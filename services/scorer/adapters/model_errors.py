"""What a model server's status, bytes or broken connection means, in the port's terms."""

from __future__ import annotations

import email.utils
import json
import time
from typing import Any

import aiohttp

from services.scorer.domain.provider import (
    BadGateway,
    ConnectionLost,
    ModelError,
    ModelMisconfigured,
    ModelProtocolError,
    ModelRefused,
    ModelServerError,
    ModelTimeout,
    ModelUnavailable,
)

_BUSY = frozenset((429, 503))
_BAD_GATEWAY = 502
_MISCONFIGURED = frozenset((401, 403, 404, 405))
_TIMED_OUT = frozenset((408, 504))
_SHOWN = 200


class Busy(ModelUnavailable):
    """429 or 503; `retry_after` is the server's wish in seconds."""

    def __init__(self, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def transport_error(error: aiohttp.ClientError | ValueError) -> ModelError:
    """No connection, a broken one, or a URL or key (ValueError) that no request can be made of."""
    reason = _line(str(error)) or type(error).__name__
    if isinstance(error, ValueError | aiohttp.NonHttpUrlClientError):
        return ModelMisconfigured(f"not a usable URL or key: {reason}")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return ModelUnavailable(f"cannot connect: {reason}")
    return ConnectionLost(f"the connection broke: {reason}")


def status_error(status: int, retry_after: str | None, data: bytes | bytearray) -> ModelError:
    """A reply whose status is not 200; `retry_after` is the header of that name."""
    reason = f"HTTP {status}: {_server_message(data)}"
    if status in _BUSY:
        return Busy(reason, _seconds(retry_after))
    if status == _BAD_GATEWAY:
        return BadGateway(reason)
    if status in _MISCONFIGURED or 300 <= status < 400:
        return ModelMisconfigured(reason)
    if status in _TIMED_OUT:
        return ModelTimeout(reason)
    if 400 <= status < 500:
        return ModelRefused(reason)
    return ModelServerError(reason)


def reply_object(data: bytes | bytearray) -> dict[str, Any]:
    """The JSON object of a reply with status 200; ModelProtocolError where it is none, or holds
    an error."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ModelProtocolError(f"the reply is no JSON: {_line(_decoded(data))}") from None
    if not isinstance(value, dict):
        raise ModelProtocolError("the reply is no JSON object")
    if value.get("error"):
        raise ModelProtocolError(f"the reply is an error: {_server_message(data)}")
    return value


def _seconds(retry_after: str | None) -> float | None:
    """Seconds from a Retry-After header, in either of its forms."""
    if not retry_after:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):  # no date, or a year of 25 digits
        return None


def _server_message(data: bytes | bytearray) -> str:
    """What the server says, on one bounded line: `{"error": …}` of either protocol, or its text."""
    try:
        error = json.loads(data)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (ValueError, LookupError, TypeError, RecursionError):
        text = None
    return _line(text if isinstance(text, str) else _decoded(data))


def _decoded(data: bytes | bytearray) -> str:
    return data[: 4 * _SHOWN].decode(errors="replace")


def _line(text: str) -> str:
    shown = "".join(char if char.isprintable() else " " for char in text[: 4 * _SHOWN])
    return " ".join(shown.split())[:_SHOWN]
