"""The row that both databases keep for a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.signer.domain.reservation import Entry, Finished, RequestKey

COLUMNS = (
    "network, request_id, wallet, score, timestamp_ms, source_event_id, source_sha256, body,"
    " event_id, event, wallet_lower"
)


def row_of(entry: Entry) -> tuple[object, ...]:
    """The values of COLUMNS."""
    return (
        *entry.request,
        entry.wallet,
        entry.score,
        entry.timestamp_ms,
        entry.source_event_id,
        entry.source_sha256,
        entry.body,
        entry.event_id,
        entry.event,
        entry.wallet_key.wallet,
    )


def entry_of(row: Sequence[Any]) -> Entry:
    """The entry in a row of COLUMNS."""
    return Entry(RequestKey(row[0], row[1]), *tuple(row)[2:-1])


def finished_in(entries: Mapping[RequestKey, Entry], request: RequestKey) -> Finished:
    """What stands signed for a request; LookupError where it was never reserved."""
    entry = entries.get(request)
    finished = None if entry is None else entry.finished
    if finished is None:
        raise LookupError(f"request {request.request_id} was not reserved on {request.network}")
    return finished
