"""A ledger restored from a backup learns what was signed since (DESIGN §3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from assay.events import WalletScoreSigned
from services.signer.domain.reservation import Entry, LedgerMismatch, RequestKey, WalletKey
from services.signer.domain.signed_event import signed_event_id


@dataclass(frozen=True, slots=True)
class AdoptedEvent:
    """A signed event as read back from the signed topic; `event_id` is its `ce_id`."""

    event_id: str
    event: bytes
    request: RequestKey
    wallet: str
    score: int
    timestamp_ms: int
    source_event_id: str
    source_sha256: bytes

    @property
    def wallet_key(self) -> WalletKey:
        return WalletKey(self.request.network, self.wallet.lower())

    @property
    def moment(self) -> tuple[WalletKey, int]:
        """The wallet and its timestamp: one score can stand there."""
        return self.wallet_key, self.timestamp_ms

    @property
    def entry(self) -> Entry:
        """The row that stands for the event."""
        return Entry(
            request=self.request,
            wallet=self.wallet,
            score=self.score,
            timestamp_ms=self.timestamp_ms,
            source_event_id=self.source_event_id,
            source_sha256=self.source_sha256,
            body=None,
            event_id=self.event_id,
            event=self.event,
        )


def adopted_event(event_id: str, value: bytes) -> AdoptedEvent:
    """What a record of the signed topic says; ValueError where it is no signed score, or where
    its id is not the one a signer gives to these bytes.

    The record must be one whose signature was verified under the signer's own keys: whoever can
    write to the topic could otherwise fill the ledger.
    """
    event = WalletScoreSigned.model_validate_json(value)
    meta = event.meta
    if meta.causation_id is None or meta.causation_sha256 is None:
        raise ValueError("the signed event does not name the validated event it was made from")
    if "\x00" in meta.causation_id:
        raise ValueError("the causation id holds a NUL, which PostgreSQL keeps in no text")
    if event_id != signed_event_id(meta.causation_id, value):
        raise ValueError(f"ce_id {event_id[:64]!r} does not follow from the record's bytes")
    return AdoptedEvent(
        event_id=event_id,
        event=value,
        request=RequestKey(event.attestations[0].network, meta.request_id),
        wallet=event.wallet_address,
        score=event.score,
        timestamp_ms=event.timestamp_ms,
        source_event_id=meta.causation_id,
        source_sha256=bytes.fromhex(meta.causation_sha256),
    )


class PassedOver(NamedTuple):
    """A copy of a signed event that somebody else wrote, and how that is known."""

    event: AdoptedEvent
    reason: str


@dataclass(frozen=True, slots=True)
class Adoption:
    """Rows to insert, rows whose reservation the topic shows to be signed, and copies."""

    new: list[Entry] = field(default_factory=list)
    finished: list[Entry] = field(default_factory=list)
    passed_over: list[PassedOver] = field(default_factory=list)

    @property
    def added(self) -> int:
        """How many signed events the ledger did not have."""
        return len(self.new) + len(self.finished)


def plan_adoption(
    events: Sequence[AdoptedEvent],
    stored: Mapping[RequestKey, Entry],
    occupied: Mapping[tuple[WalletKey, int], Entry],
) -> Adoption:
    """What adopting `events` changes; LedgerMismatch where another payload than the ledger's was
    signed for a request, or for a wallet's moment.

    `stored` holds the entries of the events' requests, `occupied` the entry at each moment of the
    events. The signature covers score, wallet and timestamp alone, so whoever may write the topic
    can put a signed payload under another request, ancestor or metadata: such a copy contradicts
    nothing and is passed over.
    """
    known, moments = dict(stored), dict(occupied)
    adoption = Adoption()
    for event in events:
        entry = moments.get(event.moment) or known.get(event.request)
        if entry is None:
            adoption.new.append(event.entry)
        else:
            _check_payload(event, entry)
            if (reason := _forgery(event, entry)) is not None:
                adoption.passed_over.append(PassedOver(event, reason))
                continue
            if entry.event is None:
                adoption.finished.append(event.entry)
        known[event.request] = moments[event.moment] = event.entry
    return adoption


def _check_payload(event: AdoptedEvent, entry: Entry) -> None:
    signed = (event.wallet, event.score, event.timestamp_ms)
    reserved = (entry.wallet, entry.score, entry.timestamp_ms)
    if signed != reserved:
        raise LedgerMismatch(
            f"the topic holds {signed} (wallet, score, timestamp) signed for request "
            f"{event.request.request_id} on {event.request.network}, and the ledger has "
            f"{reserved} for request {entry.request.request_id}"
        )


def _forgery(event: AdoptedEvent, entry: Entry) -> str | None:
    """Why an event with the payload of `entry` is not the signer's own; None where it may be."""
    if event.request != entry.request:
        return f"its payload is that of request {entry.request.request_id}"
    if entry.event is not None and (event.event_id, event.event) != (entry.event_id, entry.event):
        return f"the request's signed event is {entry.event_id}"
    source = (event.source_event_id, event.source_sha256)
    if source != (entry.source_event_id, entry.source_sha256):
        return f"the request was reserved for the validated event {entry.source_event_id}"
    return None
