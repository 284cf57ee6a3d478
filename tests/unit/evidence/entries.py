"""Entries for the tests of evidence."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

from services.evidence.domain import Entry
from services.evidence.domain.erasure import Erasure

WALLET = "0x" + "5a" * 20
_offsets = itertools.count()


def entry(**changes: Any) -> Entry:
    """An entry; without arguments of an event of its own."""
    fields: dict[str, Any] = {
        "event_id": str(uuid.uuid4()),
        "type": "wallet.score.signed.v1",
        "request_id": str(uuid.uuid4()),
        "wallet": WALLET,
        "timestamp_ms": 1_790_000_000_000,
        "topic": "wallet.score.signed.v1",
        "partition": 0,
        "offset": next(_offsets),
        "headers": (("ce_id", b"1"), ("none", None), ("raw", b"\xff\x00")),
        "value": b'{"score": 1}',
    }
    return Entry(**{**fields, **changes})


def erasure(request_id: str | None = None, wallet: str | None = None) -> Erasure:
    """An erasure of a request or a wallet."""
    return Erasure(request_id, wallet, "asked by its owner", "clerk", 1_790_000_100_000)
