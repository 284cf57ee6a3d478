"""Validate, reserve, sign, check, store, give out: in this order and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from assay.attestation import (
    EncodingError,
    SignatureError,
    normalise_low_s,
    verify_message,
)
from assay.wallet import AddressError
from services.signer.domain.ports import Ledger, Signature, SigningKey
from services.signer.domain.reservation import (
    Claim,
    ClockRefused,
    Conflict,
    Finished,
    Reservation,
    Reserved,
)
from services.signer.domain.signed_event import (
    Unsignable,
    ValidatedScore,
    claim_of,
    signed_event_id,
    unsigned_score,
)


@dataclass(frozen=True, slots=True)
class Signed:
    """The request's one signed event; `repeat` where it had been signed before."""

    event_id: str
    value: bytes
    repeat: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A validated event that can never be signed; `pointer` names the field at fault."""

    pointer: str
    reason: str


SignedOutcome = Signed | Conflict | ClockRefused | Refused


class KeyFault(Exception):
    """The key gave a signature that does not verify under its own public key: wrong key, wrong
    hash or broken hardware. Nothing was given out, and nothing must be until it is mended."""


class Signer:
    """Signs validated scores on one network with one key. `now_ms` is the wall clock."""

    def __init__(
        self, ledger: Ledger, key: SigningKey, network: str, now_ms: Callable[[], int]
    ) -> None:
        self._ledger = ledger
        self._key = key
        self._network = network
        self._now_ms = now_ms

    async def sign_batch(self, batch: Sequence[ValidatedScore]) -> list[SignedOutcome]:
        """One outcome per validated score, in order; repeating a call changes nothing.

        Raises the ledger's Pause, and KeyFault.
        """
        claims = [self._claim(validated) for validated in batch]
        asked = [claim for claim in claims if isinstance(claim, Claim)]
        reservations = await self._ledger.reserve(asked, self._now_ms()) if asked else []
        open_claims = [
            (claim, reservation)
            for claim, reservation in zip(asked, reservations, strict=True)
            if isinstance(reservation, Reserved)
        ]
        finished: list[Finished] = []
        if open_claims:
            signatures = await asyncio.to_thread(self._sign_all, open_claims)
            finished = await self._ledger.finish(signatures)
        signed, reserved = iter(finished), iter(reservations)
        return [
            claim if isinstance(claim, Refused) else _outcome(next(reserved), signed)
            for claim in claims
        ]

    def _claim(self, validated: ValidatedScore) -> Claim | Refused:
        try:
            return claim_of(validated, self._network)
        except AddressError as error:
            return Refused("/address", str(error))
        except EncodingError as error:
            return Refused("/score", str(error))
        except Unsignable as error:
            return Refused(error.pointer, str(error))

    def _sign_all(self, claims: Sequence[tuple[Claim, Reserved]]) -> list[Signature]:
        return [self._sign(claim, reservation) for claim, reservation in claims]

    def _sign(self, claim: Claim, reservation: Reserved) -> Signature:
        unsigned = unsigned_score(reservation.body, reservation.timestamp_ms)
        try:
            signature = normalise_low_s(self._key.sign(unsigned.message))
            verify_message(self._key.public_key, unsigned.message, signature)
        except SignatureError as error:
            raise KeyFault(f"key {self._key.kid}: {error}") from error
        value = unsigned.signed(self._network, self._key.kid, self._key.public_key, signature)
        return Signature(claim.request, signed_event_id(claim.source_event_id, value), value)


def _outcome(reservation: Reservation, signed: Iterator[Finished]) -> SignedOutcome:
    if isinstance(reservation, Reserved):
        event = next(signed)
        return Signed(event.event_id, event.event, repeat=not reservation.fresh)
    if isinstance(reservation, Finished):
        return Signed(reservation.event_id, reservation.event, repeat=True)
    return reservation
