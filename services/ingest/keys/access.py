"""Who may ask for a generation, and how often: the door of the Intelligence API (SPEC S5.1).

    async with access.admit(request.headers, process_id) as caller:
        ...  # caller.tenant_id; a concurrency slot is held until the block ends

A caller is who its API key says: the tenant never comes from the request (DESIGN §2).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from assay_runtime.failures import Pause
from services.ingest.domain.api_keys import ApiKey, parse_key
from services.ingest.domain.limits import (
    KEY_ALLOWANCE,
    TENANT_ALLOWANCE,
    Allowance,
    Limiter,
    Refusal,
)
from services.ingest.keys.ring import KeyRing
from services.ingest.keys.store import KeyStore

_AWAY_RETRY_S = 5


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of an API key. `prefix` is the key's public part, fit for logs."""

    key_id: str
    prefix: str
    tenant_id: str
    scopes: frozenset[str]


class AccessRefused(Exception):
    """No admission. `status` is 401, 403, 429 or 503; `code` is for programs, `message` for
    people and repeats nothing of what was presented."""

    def __init__(
        self, status: int, code: str, message: str, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        """Headers that belong on the answer: Retry-After, and WWW-Authenticate on a 401."""
        found = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        return found | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


class Access:
    """Admission by API key, scope, rate and concurrency.

    Limits are this process's own: n replicas together admit up to n times as much. A revoked key
    is refused within seconds, at the latest after `key_ring.USABLE_S`.
    """

    def __init__(
        self,
        store: KeyStore,
        *,
        per_key: Allowance = KEY_ALLOWANCE,
        per_tenant: Allowance = TENANT_ALLOWANCE,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._store = store
        self._per_key = per_key
        self._per_tenant = per_tenant
        self._now_ms = now_ms
        self._monotonic_ns = monotonic_ns
        self._limiter = Limiter()
        self._ring = KeyRing(store, monotonic_ns, self._forget_idle)

    async def open(self) -> None:
        """Raises Pause while the store is away, SettingsError where it cannot be used."""
        await self._store.open()

    async def close(self) -> None:
        await self._ring.close()
        await self._store.close()

    @asynccontextmanager
    async def admit(
        self, headers: Mapping[str, str], process_id: str | None
    ) -> AsyncIterator[Caller]:
        """Let a request in and hold its place until the block ends, however it ends.

        `headers` answers to lower-case names; the key is in `Authorization: Bearer` or
        `X-API-Key`. Without a process any scope will do, and the caller's are looked at later.
        Raises AccessRefused, before the block, and nothing else of its own.
        """
        key = await self._authenticated(headers)
        if process_id is not None and not key.covers(process_id):
            raise AccessRefused(
                403, "PROCESS_FORBIDDEN", "this API key does not cover this process"
            )
        allowances = {
            f"key {key.id}": key.allowance(self._per_key),
            f"tenant {key.tenant}": self._per_tenant,
        }
        if refusal := self._limiter.enter(allowances, self._monotonic_ns()):
            raise _too_many(refusal)
        try:
            self._ring.used(key, self._now_ms())
            yield Caller(key.id, key.prefix, key.tenant, key.scopes)
        finally:
            self._limiter.leave(allowances)

    async def _authenticated(self, headers: Mapping[str, str]) -> ApiKey:
        text = _presented(headers)
        if text is None:
            raise AccessRefused(
                401, "API_KEY_MISSING", "send the API key as Authorization: Bearer or X-API-Key"
            )
        presented = parse_key(text)
        try:
            key = await self._ring.find(presented) if presented else None
        except Pause as outage:
            raise AccessRefused(
                503, "UNAVAILABLE", "API keys cannot be checked at the moment", _AWAY_RETRY_S
            ) from outage
        if key is None:
            raise AccessRefused(401, "API_KEY_INVALID", "this is no API key of this service")
        standing = key.standing(self._now_ms())
        if standing != "active":
            raise AccessRefused(401, f"API_KEY_{standing.upper()}", f"this API key is {standing}")
        return key

    def _forget_idle(self) -> None:
        self._limiter.forget_idle(self._monotonic_ns())


def _presented(headers: Mapping[str, str]) -> str | None:
    """The text in the place of a key, empty where two places differ; None where there is none."""
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    texts = {headers.get("x-api-key", "").strip()}
    if scheme.lower() == "bearer":
        texts.add(token.strip())
    texts.discard("")
    if not texts:
        return None
    return texts.pop() if len(texts) == 1 else ""


def _too_many(refusal: Refusal) -> AccessRefused:
    whose = refusal.holder.partition(" ")[0]
    if refusal.limit == "concurrency":
        message = f"too many requests of this {whose} are running"
        return AccessRefused(429, "CONCURRENCY_LIMITED", message, refusal.retry_after_s)
    message = f"too many requests with this {whose} in this time"
    return AccessRefused(429, "RATE_LIMITED", message, refusal.retry_after_s)
