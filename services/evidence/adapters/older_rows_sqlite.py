"""Submissions that an older version kept under another wallet, in SQLite."""

from __future__ import annotations

import sqlite3

from services.evidence.adapters.evidence_rows import LOOK_UP
from services.evidence.adapters.older_rows import TOPICS, Found, names_wallet

_OF_REQUEST = (
    "SELECT id, topic, headers, value FROM evidence WHERE request_id = ? AND erased_by IS NULL"
    f" AND coalesce(wallet, '') <> ? AND topic IN ({', '.join('?' * len(TOPICS))})"
)


def look_older(wallet: str, after: int, db: sqlite3.Connection) -> Found:
    """Through the requests of one page of the wallet's rows; reads one value at a time."""
    rows = db.execute(
        "SELECT id, request_id FROM evidence WHERE wallet = ? AND id > ? ORDER BY id LIMIT ?",
        (wallet, after, LOOK_UP),
    ).fetchall()
    found = [
        row_id
        for request in {request for _, request in rows if request}
        for row_id, *told in db.execute(_OF_REQUEST, (request, wallet, *TOPICS))
        if names_wallet(wallet, *told)
    ]
    return found, rows[-1][0] if rows else None
