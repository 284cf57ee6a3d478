"""Submissions that an older version kept under another wallet, in PostgreSQL."""

from __future__ import annotations

from typing import Any

from services.evidence.adapters.evidence_rows import LOOK_UP
from services.evidence.adapters.older_rows import TOPICS, Found, names_wallet

# Of values that may have megabytes each.
_AT_ONCE = 8


async def look_older(wallet: str, after: int, db: Any) -> Found:
    """Through the requests of one page of the wallet's rows; `db` is in a transaction."""
    rows = await db.fetch(
        "SELECT id, request_id FROM evidence WHERE wallet = $1 AND id > $2 ORDER BY id LIMIT $3",
        wallet,
        after,
        LOOK_UP,
    )
    found = [
        row_id
        for request in {row["request_id"] for row in rows if row["request_id"]}
        async for row_id, *told in db.cursor(
            "SELECT id, topic, headers, value FROM evidence WHERE request_id = $1"
            " AND erased_by IS NULL AND coalesce(wallet, '') <> $2 AND topic = ANY($3::text[])",
            request,
            wallet,
            TOPICS,
            prefetch=_AT_ONCE,
        )
        if names_wallet(wallet, *told)
    ]
    return found, rows[-1]["id"] if rows else None
