"""A ledger restored from a backup learns what was signed since (DESIGN §3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.events import WalletScoreSigned
from services.signer.domain.reservation import Entry, LedgerMismatch, RequestKey, WalletKey


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
    """What a record of the signed topic says; ValueError (pydantic's) where it is no signed score.

    The record must be one whose signature was verified under the signer's own keys: whoever can
    write to the topic could otherwise fill the ledger.
    """
    event = WalletScoreSigned.model_validate_json(value)
    meta = event.meta
    if meta.causation_id is None or meta.causation_sha256 is None:
        raise ValueError("the signed event does not name the validated event it was made from")
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


@dataclass(frozen=True, slots=True)
class Adoption:
    """Rows to insert, and rows whose reservation the topic shows to be signed."""

    new: list[Entry]
    finished: list[Entry]


def plan_adoption(
    events: Sequence[AdoptedEvent],
    stored: Mapping[RequestKey, Entry],
    occupied: Mapping[tuple[WalletKey, int], RequestKey],
) -> Adoption:
    """What adopting `events` changes; LedgerMismatch where one contradicts the ledger.

    `stored` holds the entries of the events' requests, `occupied` the request at each
    (wallet, timestamp) of the events.
    """
    known, places = dict(stored), dict(occupied)
    new: list[Entry] = []
    finished: list[Entry] = []
    for event in events:
        entry = known.get(event.request)
        holder = places.get((event.wallet_key, event.timestamp_ms), event.request)
        if holder != event.request:
            raise LedgerMismatch(
                f"signed event {event.event_id} of request {event.request.request_id} has the "
                f"timestamp {event.timestamp_ms} that wallet {event.wallet_key.wallet} already "
                f"has for request {holder.request_id}"
            )
        if entry is None:
            new.append(event.entry)
        elif entry.event is None:
            _check_reservation(event, entry)
            finished.append(event.entry)
        elif (entry.event_id, entry.event) != (event.event_id, event.event):
            raise LedgerMismatch(
                f"request {event.request.request_id} on {event.request.network} has signed event "
                f"{entry.event_id} in the ledger and {event.event_id} in the topic"
            )
        known[event.request] = event.entry
        places[event.wallet_key, event.timestamp_ms] = event.request
    return Adoption(new, finished)


def _check_reservation(event: AdoptedEvent, entry: Entry) -> None:
    signed = (event.wallet, event.score, event.timestamp_ms)
    reserved = (entry.wallet, entry.score, entry.timestamp_ms)
    if signed != reserved:
        raise LedgerMismatch(
            f"request {event.request.request_id} on {event.request.network} is reserved for "
            f"(wallet, score, timestamp) {reserved}, and the topic holds {signed} signed"
        )
