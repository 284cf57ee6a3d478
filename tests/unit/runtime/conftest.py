"""Records and a publisher that keeps what it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from assay_runtime.failures import DeadLetter
from assay_runtime.record_batches import Outgoing
from assay_runtime.records import Record


@dataclass
class MemoryPublisher:
    """Stands in for Publisher; `limit` is the largest value it takes."""

    limit: int = 1_000
    sent: list[Outgoing] = field(default_factory=list)
    calls: int = 0

    def check(self, message: Outgoing) -> None:
        size = len(message.value or b"") + sum(len(v or b"") for _, v in message.headers)
        if size > self.limit:
            raise DeadLetter(f"{size} bytes", code="output_too_large")

    async def send(self, outgoing: Sequence[tuple[Outgoing, str]]) -> list[Any]:
        self.calls += 1
        self.sent += [message for message, _ in outgoing]
        return []

    async def confirm(self, futures: Sequence[Any]) -> None:
        return None


@pytest.fixture
def publisher() -> MemoryPublisher:
    return MemoryPublisher(limit=100_000)


def make_record(offset: int = 0, **changes: Any) -> Record:
    headers = (
        ("ce_specversion", b"1.0"),
        ("ce_id", b"id-%d" % offset),
        ("ce_source", b"/test"),
        ("ce_type", b"t"),
        ("ce_requestid", b"request-%d" % offset),
    )
    known = {
        "topic": "in",
        "partition": 3,
        "offset": offset,
        "timestamp_ms": 1,
        "key": b"k",
        "value": b"%d" % offset,
        "headers": headers,
    }
    return Record(**{**known, **changes})


@pytest.fixture(name="make_record")
def _make_record() -> Any:
    return make_record
