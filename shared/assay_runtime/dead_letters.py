"""Dead letters: what is kept of a record that cannot be handled, and when to stop instead."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from assay.topics import dead_letter_name, origin_name
from assay_runtime.failures import DeadLetter, Stop
from assay_runtime.raw_message import RawMessage, encoded, passed_on
from assay_runtime.records import Position, Record
from assay_runtime.settings import KafkaSection

_MESSAGE_BYTES = 1_024
_PLACES = 2
_EXAMPLE = 80


def dead_letter(
    record: Record,
    reason: DeadLetter,
    service: str,
    check: Callable[[RawMessage], None] = lambda message: None,
    *,
    attempts: int = 1,
    request_id: str | None = None,
) -> RawMessage:
    """The record as it came, raw bytes and original headers, with Kafka Connect's
    `__connect.errors.*` headers beside them (DESIGN §3). `attempts` says how often a postponed
    record was tried in all; `request_id` counts where the reason names none.

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
    if request_id := reason.request_id or request_id:
        extra["assay.request.id"] = request_id[:_MESSAGE_BYTES]
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


@dataclass(frozen=True, slots=True)
class _Dead:
    """One that could not be handled; `number` counts the records that were judged before it."""

    number: int
    place: Position
    offset: int
    code: str
    reason: str


class DeadLetterLimit:
    """Stops a service whose deploy is bad, rather than dead-lettering everything (DESIGN §3).

    `dead` raises Stop once more than `ratio` of the last `window` records could not be handled;
    it does not wait for a full window where that is certain already. None or 0 as ratio turns it
    off, which a public input topic needs: rubbish there is the publishers'. A start that begins
    anew with a full poll of such records sends none of them, so restarting is no way past it; what
    comes in smaller polls may bury `ratio` of a window per start.
    """

    def __init__(self, ratio: float | None = 0.5, window: int = 200) -> None:
        self._most = ratio * window if ratio else math.inf
        self._window = window
        self._judged = 0
        self._dead: deque[_Dead] = deque()

    @classmethod
    def of(cls, kafka: KafkaSection, *, on: bool) -> Self:
        """As configured, where the pipeline has a limit at all."""
        return cls(kafka.dead_letter_ratio if on else None, kafka.dead_letter_window)

    def handled(self) -> None:
        """Note a record that was handled."""
        self._judged += 1

    def dead(self, record: Record, reason: DeadLetter) -> None:
        """Note one that could not be; raise Stop where that is one too many."""
        if self._most == math.inf:
            return
        place, text = Position(record.topic, record.partition), str(reason)[:_EXAMPLE]
        self._dead.append(_Dead(self._judged, place, record.offset, reason.code, text))
        self._judged += 1
        while self._dead[0].number < self._judged - self._window:
            self._dead.popleft()
        if len(self._dead) > self._most:
            raise Stop(self._said())

    def _said(self) -> str:
        """Short enough for one line of a terminal, with what to do in it."""
        codes = Counter(dead.code for dead in self._dead)
        [(code, count)] = codes.most_common(1)
        example = next(dead.reason for dead in self._dead if dead.code == code)
        ranges: dict[Position, tuple[int, int]] = {}
        for dead in self._dead:
            low, high = ranges.get(dead.place, (dead.offset, dead.offset))
            ranges[dead.place] = min(low, dead.offset), max(high, dead.offset)
        places = [
            f"{place.topic}/{place.partition} offsets {low} to {high}"
            for place, (low, high) in sorted(ranges.items())
        ]
        more = f" and {len(places) - _PLACES} more partitions" if len(places) > _PLACES else ""
        return (
            f"{len(self._dead)} of the last {min(self._judged, self._window)} records could not be "
            f"handled ({', '.join(places[:_PLACES])}{more}), {count} of them as {code}: "
            f"{' '.join(example.split())}. Nothing of the last batch was sent. Mend the deploy; "
            "or, if the records are what is bad, set ASSAY_KAFKA__DEAD_LETTER_RATIO=0 until they "
            "are dead-lettered"
        )
