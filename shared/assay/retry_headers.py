"""The headers that make a record a postponed one (DESIGN §3).

They stand behind the record's own headers, from `assay.retry.topic` on, so that a publisher's own
headers of these names are never taken for them. Beside that first one: `partition`, `offset` and
`timestamp` (milliseconds) of the origin, `attempt` (waits so far, from 1), `not-before`
(milliseconds since 1970), `code` and `message` of the failure.
"""

from __future__ import annotations

from assay.envelope import Headers

FIRST = "assay.retry.topic"
NOT_BEFORE = "assay.retry.not-before"
_MESSAGE_BYTES = 1_024


def retry_headers(
    *,
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    attempt: int,
    not_before_ms: int,
    code: str,
    message: str,
) -> Headers:
    """What is added to the headers of a record that stood at this place."""
    text = {
        FIRST: topic,
        "assay.retry.partition": str(partition),
        "assay.retry.offset": str(offset),
        "assay.retry.timestamp": str(timestamp_ms),
        "assay.retry.attempt": str(attempt),
        NOT_BEFORE: str(not_before_ms),
        "assay.retry.code": code,
        "assay.retry.message": message[:_MESSAGE_BYTES],
    }
    return tuple((name, value.encode("utf-8", "replace")) for name, value in text.items())


def behind_last(headers: Headers, first: str) -> int | None:
    """Where the headers end that a record had before some were added, of which `first` is the
    first; None where none were."""
    names = [name for name, _ in headers]
    return len(names) - 1 - names[::-1].index(first) if first in names else None
