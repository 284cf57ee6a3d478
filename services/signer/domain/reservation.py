"""Which payload a request may ever have signed (DESIGN §3, SPEC X.2, S3.9).

The rules are here, once, and pure; the ledgers only load, apply and store them in one
transaction. Scope is the network, not the key: changing keys cannot allow a second score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# A wallet's clock may run so far ahead of ours, in milliseconds (many scores in one moment).
MAX_AHEAD_MS = 60_000


class RequestKey(NamedTuple):
    """One request on one network: the scope in which a score is unique."""

    network: str
    request_id: str


class WalletKey(NamedTuple):
    """One wallet on one network; `wallet` is the lower-case address."""

    network: str
    wallet: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A validated score that asks for its one place in the ledger.

    `wallet` is spelled as the caller did. `source_event_id` and `source_sha256` (32 bytes) name
    the validated event and its value. `body` is the signed event's content without timestamp and
    attestations.
    """

    network: str
    request_id: str
    wallet: str
    score: int
    source_event_id: str
    source_sha256: bytes
    body: bytes

    @property
    def request(self) -> RequestKey:
        return RequestKey(self.network, self.request_id)

    @property
    def wallet_key(self) -> WalletKey:
        return WalletKey(self.network, self.wallet.lower())


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the ledger: `body` until it is signed, then `event_id` and `event`."""

    request: RequestKey
    wallet: str
    score: int
    timestamp_ms: int
    source_event_id: str
    source_sha256: bytes
    body: bytes | None
    event_id: str | None = None
    event: bytes | None = None

    @property
    def wallet_key(self) -> WalletKey:
        return WalletKey(self.request.network, self.wallet.lower())

    @property
    def finished(self) -> Finished | None:
        """The signed event, once there is one."""
        if self.event_id is None or self.event is None:
            return None
        return Finished(self.event_id, self.event)


@dataclass(frozen=True, slots=True)
class Reserved:
    """The place is the claim's: sign exactly this. `fresh` tells a first reservation from a
    repeat that was not finished."""

    timestamp_ms: int
    body: bytes
    fresh: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """Signed already: give out these bytes under this id."""

    event_id: str
    event: bytes


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another validated event holds the request: record it, never sign it. Where the request is
    finished, `signed` is given out again: whoever asked anew waits for it."""

    source_event_id: str
    score: int
    reason: str
    signed: Finished | None = None


@dataclass(frozen=True, slots=True)
class ClockRefused:
    """The wallet's next timestamp lies more than MAX_AHEAD_MS ahead: our clock went back, or
    was wrong before. Nothing is reserved; the claim fits from `admissible_from_ms` on."""

    timestamp_ms: int
    now_ms: int

    @property
    def admissible_from_ms(self) -> int:
        return self.timestamp_ms - MAX_AHEAD_MS

    @property
    def reason(self) -> str:
        ahead = (self.timestamp_ms - self.now_ms) / 1000
        return (
            f"the wallet's next timestamp, {self.timestamp_ms}, is {ahead:.1f} s ahead of this "
            f"signer's clock, {self.now_ms}; at most {MAX_AHEAD_MS // 1000} s is allowed"
        )


Reservation = Reserved | Finished | Conflict | ClockRefused


class LedgerMismatch(Exception):
    """The ledger and the signed topic contradict each other: nothing may be signed until a
    person has looked."""


class Plan(NamedTuple):
    """What a batch gets, and the rows that make it so."""

    reservations: list[Reservation]
    entries: list[Entry]


def plan_reservations(
    batch: Sequence[Claim],
    stored: Mapping[RequestKey, Entry],
    last_ms: Mapping[WalletKey, int],
    now_ms: int,
) -> Plan:
    """Reservations of a batch in its order.

    `stored` holds the entries of the batch's requests, `last_ms` the last timestamp of its
    wallets; both as locked by the transaction that will store the plan. Times are milliseconds
    since 1970.
    """
    known = dict(stored)
    last = dict(last_ms)
    reservations: list[Reservation] = []
    entries: list[Entry] = []
    for claim in batch:
        entry = known.get(claim.request)
        if entry is not None:
            fresh = False
        else:
            timestamp_ms = max(now_ms, last.get(claim.wallet_key, -1) + 1)
            if timestamp_ms > now_ms + MAX_AHEAD_MS:
                reservations.append(ClockRefused(timestamp_ms, now_ms))
                continue
            entry = _entry(claim, timestamp_ms)
            fresh = True
            known[claim.request] = entry
            last[claim.wallet_key] = timestamp_ms
            entries.append(entry)
        reservations.append(_answer(claim, entry, fresh))
    return Plan(reservations, entries)


def _entry(claim: Claim, timestamp_ms: int) -> Entry:
    return Entry(
        request=claim.request,
        wallet=claim.wallet,
        score=claim.score,
        timestamp_ms=timestamp_ms,
        source_event_id=claim.source_event_id,
        source_sha256=claim.source_sha256,
        body=claim.body,
    )


def _answer(claim: Claim, entry: Entry, fresh: bool) -> Reservation:
    if claim.source_event_id != entry.source_event_id:
        reason = "another validated event was reserved for this request first"
    elif claim.source_sha256 != entry.source_sha256:
        reason = "the validated event reserved for this request has the same id but other bytes"
    elif entry.finished is not None:
        return entry.finished
    elif entry.body is not None:
        return Reserved(entry.timestamp_ms, entry.body, fresh)
    else:
        raise LedgerMismatch(f"the entry of {entry.request} has neither a body nor an event")
    return Conflict(entry.source_event_id, entry.score, reason, entry.finished)
