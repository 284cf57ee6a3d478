"""Dead letters: what is kept of a record that cannot be handled, and when to stop instead."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from assay.topics import dead_letter_name, origin_name
from assay_runtime.failures import DeadLetter, Stop
from assay_runtime.raw_message import RawMessage, encoded, passed_on
from assay_runtime.records import Record

_MESSAGE_BYTES = 1_024


def dead_letter(
    record: Record,
    reason: DeadLetter,
    service: str,
    check: Callable[[RawMessage], None] = lambda message: None,
    *,
    attempts: int = 1,
) -> RawMessage:
    """The record as it came, raw bytes and original headers, with Kafka Connect's
    `__connect.errors.*` headers beside them (DESIGN §3). `attempts` says how often a postponed
    record was tried in all.

    Where `check` refuses that as too large (a record may have been compressed far below the
    broker's limit), the value is replaced by its size and SHA-256, then the headers go too: the
    record still stands at the named offset.
    """
    cause = reason.__cause__ or reason
    extra = {
        "__connect.errors.topic": record.topic,
        "__connect.errors.partition": str(record.partition),
        "__connect.errors.offset": str(record.offset),
        "__connect.errors.connector.name": service,
        "__connect.errors.stage": "VALUE_CONVERTER" if reason.__cause__ else "TASK_PUT",
        "__connect.errors.exception.class.name": type(cause).__name__,
        "__connect.errors.exception.message": str(reason)[:_MESSAGE_BYTES],
        "assay.error.code": reason.code,
    }
    if reason.pointer is not None:
        extra["assay.error.pointer"] = reason.pointer[:_MESSAGE_BYTES]
    if reason.request_id is not None:
        extra["assay.request.id"] = reason.request_id[:_MESSAGE_BYTES]
    if attempts > 1:
        extra["assay.error.attempts"] = str(attempts)
    added = encoded(extra)
    whole = passed_on(record, dead_letter_name(origin_name(record.topic), service), added)
    try:
        check(whole)
    except DeadLetter:
        pass
    else:
        return whole
    left_out = encoded(
        {
            "assay.error.value.bytes": str(len(whole.value or b"")),
            "assay.error.value.sha256": hashlib.sha256(whole.value or b"").hexdigest(),
        }
    )
    without_value = replace(whole, value=b"", headers=whole.headers + left_out)
    try:
        check(without_value)
    except DeadLetter:
        return replace(without_value, key=b"", headers=added + left_out)
    return without_value


class DeadLetterLimit:
    """Stops a service whose deploy is bad, rather than dead-lettering everything (DESIGN §3).

    Raises Stop once more than `ratio` of the last `window` records were dead-lettered. None as
    ratio turns it off, which a public input topic needs: rubbish there is the publishers'.
    """

    def __init__(self, ratio: float | None = 0.5, window: int = 200) -> None:
        self._ratio = ratio
        self._last: deque[bool] = deque(maxlen=window)
        self._dead = 0

    def note(self, dead: bool) -> None:
        if self._ratio is None:
            return
        if len(self._last) == self._last.maxlen:
            self._dead -= self._last[0]
        self._last.append(dead)
        self._dead += dead
        if len(self._last) == self._last.maxlen and self._dead > self._ratio * len(self._last):
            raise Stop(
                f"{self._dead} of the last {len(self._last)} records were dead-lettered: "
                "the deploy is bad and not the messages"
            )
