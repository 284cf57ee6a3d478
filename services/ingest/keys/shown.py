"""Keys as `assay keys` shows them: everything but hash and secret."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from services.ingest.domain.api_keys import ApiKey

_COLUMNS = ("prefix", "state", "tenant", "name", "processes", "limits", "expires", "last used")


def as_json(key: ApiKey, now_ms: int) -> dict[str, Any]:
    """Times in UTC; limits that are null are the service's defaults."""
    return {
        "id": key.id,
        "prefix": key.prefix,
        "tenant": key.tenant,
        "name": key.name,
        "processes": sorted(key.scopes),
        "state": key.standing(now_ms),
        "created_at": _time(key.created_ms),
        "expires_at": _time(key.expires_ms),
        "revoked_at": _time(key.revoked_ms),
        "last_used_at": _time(key.last_used_ms),
        "rate_per_min": key.per_minute,
        "burst": key.burst,
        "concurrency": key.concurrency,
        "replaces": key.replaces,
    }


def as_lines(keys: Iterable[ApiKey], now_ms: int) -> list[str]:
    """A heading and a line a key, in columns, however wide: nothing to be copied is cut."""
    rows = [_COLUMNS, *(_row(key, now_ms) for key in keys)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _row(key: ApiKey, now_ms: int) -> tuple[str, ...]:
    return (
        key.prefix,
        key.standing(now_ms),
        key.tenant,
        key.name,
        ",".join(sorted(key.scopes)),
        _limits(key),
        _time(key.expires_ms) or "never",
        _time(key.last_used_ms) or "never",
    )


def _limits(key: ApiKey) -> str:
    own = ((key.per_minute, "/min"), (key.burst, " burst"), (key.concurrency, " at once"))
    return ", ".join(f"{value}{unit}" for value, unit in own if value) or "default"


def _time(ms: int | None) -> str | None:
    return None if ms is None else f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
