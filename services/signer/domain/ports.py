"""What the signer needs from outside: a key, and the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from services.signer.domain.reconciliation import AdoptedEvent, Adoption
from services.signer.domain.reservation import (
    Claim,
    Entry,
    Finished,
    RequestKey,
    Reservation,
)


class SigningKey(Protocol):
    """A secp256k1 key that never leaves its place.

    `sign` is called off the event loop and may block; it may give high s, the signer normalises.
    """

    @property
    def public_key(self) -> bytes:
        """33 bytes, compressed: the published key."""
        ...

    @property
    def kid(self) -> str:
        """RFC 7638 thumbprint."""
        ...

    def sign(self, message: bytes) -> bytes:
        """64 bytes r and s, ECDSA over SHA-256 of the message."""
        ...


class Signature(NamedTuple):
    """A signed event on its way into the ledger."""

    request: RequestKey
    event_id: str
    event: bytes


class Ledger(Protocol):
    """Every method is one transaction, committed before it returns.

    While the database is away (gone, full, locked too long) they raise the runtime's `Pause`, and
    nothing was stored or everything: asking again is always safe.
    """

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def reserve(self, batch: Sequence[Claim], now_ms: int) -> list[Reservation]:
        """One reservation per claim, in order (`plan_reservations` has the rules)."""
        ...

    async def finish(self, signatures: Sequence[Signature]) -> list[Finished]:
        """Store signed events; of two for one request the first stands and is returned.

        LookupError where a request was never reserved.
        """
        ...

    async def get(self, request: RequestKey) -> Entry | None:
        """The entry of a request."""
        ...

    async def positions(self, topic: str) -> dict[int, int]:
        """Partition to next offset: up to where `adopt` has taken the topic in."""
        ...

    async def adopt(
        self, events: Sequence[AdoptedEvent], topic: str, positions: Mapping[int, int]
    ) -> Adoption:
        """Take in signed events read back from `topic`, with the offsets to go on from.

        Returns what that changed and what was passed over (`plan_adoption` has the rules).
        LedgerMismatch, and nothing stored, where an event contradicts the ledger.
        """
        ...
