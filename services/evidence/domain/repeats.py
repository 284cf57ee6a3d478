"""When a record is one that is kept already, and what becomes of one that only says so
(DESIGN §7). Pure."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import NamedTuple, Self

from assay.envelope import Headers, text_headers
from assay.events import WalletEventSubmitted
from services.evidence.domain.entries import DEAD_LETTER, Entry, derived_id, failure_of
from services.evidence.domain.named_wallets import SUBMISSIONS

CONFLICT = "EVIDENCE_CONFLICT"
# What services seal their requests with (`assay_runtime.seals`).
SEAL_HEADER = "assay_seal"


class Kept(NamedTuple):
    """What makes a row the record that it is. Trace context, duration, time and place are left
    out: a redelivery may bring others.

    Of an erased row `value`, `seal` and `failure` are None; they are gone, as is the salt of its
    hash.
    """

    value: bytes | None
    topic: str
    type: str
    request_id: str | None
    wallet: str | None
    seal: bytes | None
    failure: tuple[str | None, ...] | None = None

    @classmethod
    def of(cls, entry: Entry) -> Self:
        return cls.of_columns(
            entry.value,
            entry.topic,
            entry.type,
            entry.request_id,
            entry.wallet,
            entry.headers,
        )

    @classmethod
    def of_columns(
        cls,
        value: bytes | None,
        topic: str,
        kind: str,
        request_id: str | None,
        wallet: str | None,
        headers: Headers,
    ) -> Self:
        """Of a row; without a value it is an erased one."""
        told = kind == DEAD_LETTER and value is not None
        failure = failure_of(text_headers(headers)) if told else None
        return cls(value, topic, kind, request_id, wallet, seal_of(headers), failure)


def seal_of(headers: Headers) -> bytes | None:
    """The seal that a reader of the record checks; None where it has none."""
    return next((value or b"" for name, value in reversed(headers) if name == SEAL_HEADER), None)


def is_repeat(entry: Entry, kept: Kept) -> bool:
    """Whether the entry, of the same id, adds nothing to what is kept.

    A request that is made again under a new key of the seals does: it costs a row, where taking it
    for a repeat would let a client put a seal of no key before it.
    """
    told = Kept.of(entry)
    if kept.value is None:
        # The id still stands for the value, but for a dead letter, which services alone write; and
        # so for the wallet that the value of a submission names, whatever was kept as such.
        wallet = kept.wallet if entry.topic in SUBMISSIONS else told.wallet
        told = told._replace(value=None, wallet=wallet, seal=None, failure=None)
    return told == kept or _named_by_place(entry, kept, told)


def _named_by_place(entry: Entry, kept: Kept, told: Kept) -> bool:
    """Whether the entry is a submission without an id that is offered again, with the id that its
    first place gave it. The other way round it is somebody who foresaw the place."""
    return (
        entry.topic == WalletEventSubmitted.type
        and kept.request_id == text_headers(entry.headers).get("ce_id")
        and kept == told._replace(request_id=kept.request_id)
    )


def conflict_of(entry: Entry) -> Entry:
    """The entry under an id over all of it that is compared: another record has its id."""
    told = Kept.of(entry)
    identifier = derived_id(
        CONFLICT,
        entry.event_id,
        told.topic,
        told.type,
        told.request_id,
        told.wallet,
        None if told.seal is None else told.seal.hex(),
        hashlib.sha256(entry.value).hexdigest(),
    )
    return replace(entry, event_id=identifier, type=CONFLICT)
