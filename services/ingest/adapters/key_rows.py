"""A key as both databases store it: the values in the order of their columns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from services.ingest.domain.api_keys import ApiKey

COLUMNS = (
    "id, digest, tenant, name, scopes, created_ms, expires_ms, revoked_ms, last_used_ms,"
    " per_minute, burst, concurrency, replaces"
)


def values_of(key: ApiKey) -> tuple[object, ...]:
    """In the order of COLUMNS; scopes as a JSON array."""
    return (
        key.id,
        key.digest,
        key.tenant,
        key.name,
        json.dumps(sorted(key.scopes)),
        key.created_ms,
        key.expires_ms,
        key.revoked_ms,
        key.last_used_ms,
        key.per_minute,
        key.burst,
        key.concurrency,
        key.replaces,
    )


def key_of(row: Iterable[Any]) -> ApiKey:
    """The key that stands in a row of COLUMNS."""
    key_id, digest, tenant, name, scopes, created_ms, *rest = row
    return ApiKey(key_id, digest, tenant, name, frozenset(json.loads(scopes)), created_ms, *rest)
