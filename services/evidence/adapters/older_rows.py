"""Submissions that an older version kept under another wallet than their value names, or none.

They are found through the requests that the wallet's other rows belong to. Anybody may have copied
a request's id, so the value itself must name the wallet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from services.evidence.adapters.evidence_rows import in_parts
from services.evidence.domain import SUBMISSIONS, read_header_bytes, wallet_in
from services.evidence.domain.erasure import Erasure

TOPICS = tuple(sorted(SUBMISSIONS))

Found = tuple[list[int], int | None]
"""Ids, and the cursor behind which to go on, None at the end."""


def names_wallet(wallet: str, topic: str, headers: bytes, value: bytes) -> bool:
    """Whether the value of a row is about the wallet."""
    return wallet_in(topic, read_header_bytes(headers), value) == wallet


async def older_ids(
    erasure: Erasure, look: Callable[[str, int], Awaitable[Found]]
) -> AsyncIterator[list[int]]:
    """Ids of those that an erasure of a wallet reaches, a part at a time, some perhaps twice.
    `look` finds them for one page of the wallet's rows."""
    after: int | None = 0
    while erasure.wallet is not None and after is not None:
        ids, after = await look(erasure.wallet, after)
        for part in in_parts(ids):
            yield part
