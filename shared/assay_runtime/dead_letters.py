"""Dead letters: what is kept of a record that cannot be handled, and when to stop instead."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from assay.envelope import Headers
from assay.topics import dead_letter_name
from assay_runtime.failures import DeadLetter, Stop
from assay_runtime.records import Record

_MESSAGE_BYTES = 1_024


@dataclass(frozen=True, slots=True)
class DeadLetterMessage:
    """A dead letter ready to be published; what the record lacked, it lacks."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers


def dead_letter(
    record: Record,
    reason: DeadLetter,
    service: str,
    check: Callable[[DeadLetterMessage], None] = lambda message: None,
) -> DeadLetterMessage:
    """The record as it came, raw bytes and original headers, with Kafka Connect's
    `__connect.errors.*` headers beside them (DESIGN §3).

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
    added = _encoded(extra)
    # A value must not be null where the key is (aiokafka refuses it, and it would say nothing).
    value = record.value if record.value is not None or record.key is not None else b""
    whole = DeadLetterMessage(
        dead_letter_name(record.topic, service), record.key, value, tuple(record.headers) + added
    )
    try:
        check(whole)
    except DeadLetter:
        pass
    else:
        return whole
    left_out = _encoded(
        {
            "assay.error.value.bytes": str(len(value or b"")),
            "assay.error.value.sha256": hashlib.sha256(value or b"").hexdigest(),
        }
    )
    without_value = replace(whole, value=b"", headers=whole.headers + left_out)
    try:
        check(without_value)
    except DeadLetter:
        return replace(without_value, key=b"", headers=added + left_out)
    return without_value


def _encoded(headers: dict[str, str]) -> Headers:
    return tuple((name, value.encode("utf-8", "replace")) for name, value in headers.items())


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
