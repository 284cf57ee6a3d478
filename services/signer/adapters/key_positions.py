"""How far the ledger has come in the signed topic, with each key that it trusts (DESIGN §3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from services.signer.domain.ports import Ledger
from services.signer.domain.reconciliation import AdoptedEvent, Adoption


class KeyPositions:
    """Positions per key, so that a previous key which had been forgotten is read from the start.

    `topic` is the signed topic's name in the ledger, `key` the one that signs now, all in hex.
    """

    def __init__(self, ledger: Ledger, topic: str, key: str, previous: Collection[str]) -> None:
        self._ledger = ledger
        self._topic = topic
        self._key = key
        self._places = {trusted: f"{topic} {trusted}" for trusted in (key, *previous)}

    async def known(self) -> dict[int, int]:
        """Partition to the offset below which the ledger has the events of every trusted key.

        A key that signs for the first time is as far as the others: its events come later.
        """
        # Ledgers of before have one position for all keys.
        shared = await self._ledger.positions(self._topic)
        known = {key: await self._ledger.positions(name) for key, name in self._places.items()}
        if not known[self._key] and any(known.values()):
            del known[self._key]
        of_keys = [positions or shared for positions in known.values()]
        return {p: min(of.get(p, 0) for of in of_keys) for of in of_keys for p in of}

    async def adopt(self, events: Sequence[AdoptedEvent], positions: Mapping[int, int]) -> Adoption:
        """Take events in, then move the positions; LedgerMismatch as the ledger says."""
        first, *others = self._places.values()
        adoption = await self._ledger.adopt(events, first, positions)
        for place in others:
            await self._ledger.adopt([], place, positions)
        return adoption
