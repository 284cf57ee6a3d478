"""Fetching wallet data from the configured aggregator (SPEC S3.8).

AggregatorError
├── AggregatorTimeout       it was reached and did not answer in time
├── AggregatorUnavailable   no connection, 5xx, or still 429/502/503 after the retries
├── WalletUnknown           404: it has no such wallet
├── AggregatorRefused       any other 3xx or 4xx: the request or the configuration is wrong
└── AggregatorRubbish       an answer that is no usable record of this wallet

The first two are outages, which a retry may mend; the others are final for the wallet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self

import aiohttp
import httpx
import stamina
from httpx_aiohttp import AiohttpTransport

from assay.submission import SubmissionError
from services.ingest.domain.aggregator_url import checked_template, url_for
from services.ingest.domain.fingerprint import canonical_evm_bytes
from services.ingest.domain.strict_json import JsonLimits, read_json
from services.ingest.domain.submission import check_same_wallet

# The answers that promise to be different in a moment (DESIGN §5).
_TRY_AGAIN = frozenset({429, 502, 503})


class AggregatorError(Exception):
    """Root of the tree; the message is written for a person and names no URL."""


class AggregatorTimeout(AggregatorError):
    """It was reached and did not answer in time."""


class AggregatorUnavailable(AggregatorError):
    """No connection, 5xx, or still 429/502/503 after the retries."""


class WalletUnknown(AggregatorError):
    """It has no such wallet (404)."""


class AggregatorRefused(AggregatorError):
    """It refuses the request; asking again would change nothing."""


class AggregatorRubbish(AggregatorError):
    """An answer that is no usable record of this wallet."""


class _Transient(AggregatorUnavailable):
    """Worth another try, `retry_after` seconds from now where the aggregator said so."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AggregatorClient:
    """A client of one aggregator; open it once, close it at the end. Times are seconds.

    `deadline_s` bounds a whole fetch, retries and waits included. Redirects are not followed, and
    the answer is read in pieces up to the limit, uncompressed, so that it cannot swell.
    """

    def __init__(
        self,
        url_template: str,
        *,
        deadline_s: float = 20,
        connect_s: float = 3,
        read_s: float = 10,
        attempts: int = 3,
        first_wait_s: float = 0.2,
        limits: JsonLimits | None = None,
    ) -> None:
        self._template = checked_template(url_template)
        self._deadline_s = deadline_s
        self._attempts = attempts
        self._first_wait_s = first_wait_s
        self._limits = limits or JsonLimits()
        self._http = httpx.AsyncClient(
            transport=AiohttpTransport(),
            timeout=httpx.Timeout(read_s, connect=connect_s, pool=deadline_s),
            headers={"accept": "application/json", "accept-encoding": "identity"},
            follow_redirects=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def fetch(self, address: str) -> dict[str, Any]:
        """The record of a wallet, normalised as inline data is; raises from the tree above."""
        return self._record(await self._fetch_bytes(address), address)

    async def _fetch_bytes(self, address: str) -> bytes:
        end = asyncio.get_running_loop().time() + self._deadline_s
        last: _Transient | None = None
        try:
            async with asyncio.timeout_at(end):
                async for attempt in stamina.retry_context(
                    on=self._wait_before_retry(end),
                    attempts=self._attempts,
                    timeout=None,
                    wait_initial=self._first_wait_s,
                    wait_jitter=self._first_wait_s,
                ):
                    with attempt:
                        try:
                            return await self._get(url_for(self._template, address))
                        except _Transient as error:
                            last = error
                            raise
        except TimeoutError as error:
            if last is not None:
                raise last from error
            raise AggregatorTimeout(f"no answer within {self._deadline_s:g} s") from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _wait_before_retry(self, end: float) -> Callable[[Exception], bool | float]:
        def hook(error: Exception) -> bool | float:
            if not isinstance(error, _Transient):
                return False
            if error.retry_after is None:
                return True
            left = end - asyncio.get_running_loop().time()
            return error.retry_after if error.retry_after < left else False

        return hook

    async def _get(self, url: str) -> bytes:
        try:
            async with self._http.stream("GET", url) as response:
                _check_status(response)
                return await self._body(response)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _Transient(f"no connection: {_reason(error)}") from error
        except httpx.TimeoutException as error:
            raise AggregatorTimeout("it was reached and then fell silent") from error
        except (httpx.TransportError, aiohttp.ClientConnectionError) as error:
            raise AggregatorUnavailable(f"the connection broke: {_reason(error)}") from error
        except aiohttp.ClientError as error:
            raise AggregatorRubbish(f"the answer is no HTTP: {type(error).__name__}") from error

    async def _body(self, response: httpx.Response) -> bytes:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise AggregatorRubbish(f"compressed ({encoding[:20]!r}) although not asked for")
        most = self._limits.max_bytes
        declared = response.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > most:
            raise AggregatorRubbish(f"the record has {int(declared[:20]):,} bytes, over {most:,}")
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > most:
                raise AggregatorRubbish(f"the record is larger than {most:,} bytes")
        return bytes(body)

    def _record(self, body: bytes, address: str) -> dict[str, Any]:
        try:
            record, _ = read_json(body, self._limits)
            if not isinstance(record, dict):
                raise AggregatorRubbish("the answer is JSON but no object")
            check_same_wallet(record, address.lower())
            if len(canonical_evm_bytes(record)) > self._limits.max_bytes:
                raise AggregatorRubbish(
                    f"the record is larger than {self._limits.max_bytes:,} bytes when written out"
                )
        except SubmissionError as error:
            where = f" at {error.pointer}" if error.pointer else ""
            raise AggregatorRubbish(f"{error.message}{where}") from error
        return record


def _check_status(response: httpx.Response) -> None:
    status = response.status_code
    if status == 200:
        return
    if status in _TRY_AGAIN:
        raise _Transient(f"it answers {status}", _retry_after(response))
    if status == 404:
        raise WalletUnknown("it does not know this wallet")
    if status >= 500:
        raise AggregatorUnavailable(f"it answers {status}")
    if 300 <= status < 400:
        raise AggregatorRefused(f"it answers {status}, a redirect, which is not followed")
    if status >= 400:
        raise AggregatorRefused(f"it answers {status}")
    raise AggregatorRubbish(f"it answers {status} where 200 was expected")


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds to wait as the header says, in either of its forms; None where it says nothing."""
    text = response.headers.get("retry-after", "").strip()
    if text.isdecimal():
        return float(text[:9])
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _reason(error: Exception) -> str:
    """The kind of a transport error; its text may hold the URL, and that a credential."""
    cause = error.__cause__ or error
    return type(cause).__name__
