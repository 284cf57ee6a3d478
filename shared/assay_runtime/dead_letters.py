"""Dead letters: what is kept of a record that cannot be handled, and when to stop instead."""

from __future__ import annotations

from collections import deque

from assay.envelope import Message
from assay.topics import dead_letter_name
from assay_runtime.failures import DeadLetter, Stop
from assay_runtime.records import Record

_MESSAGE_BYTES = 1_024


def dead_letter(record: Record, reason: DeadLetter, service: str) -> Message:
    """The record as it came, raw bytes and original headers, with Kafka Connect's
    `__connect.errors.*` headers beside them (DESIGN §3)."""
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
        extra["assay.error.pointer"] = reason.pointer
    if reason.request_id is not None:
        extra["assay.request.id"] = reason.request_id
    headers = tuple((name, value if value is not None else b"") for name, value in record.headers)
    added = tuple((name, value.encode("utf-8", "replace")) for name, value in extra.items())
    return Message(
        topic=dead_letter_name(record.topic, service),
        key=record.key or b"",
        value=record.value if record.value is not None else b"",
        headers=headers + added,
    )


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
