"""What ingest remembers of requests: the accepted event, and how each request ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Status = Literal["pending", "signed", "rejected", "dead_lettered"]

# A repeat of such a request has nothing left to do. A dead-lettered one may be tried again.
ENDED: frozenset[Status] = frozenset({"signed", "rejected"})


@dataclass(frozen=True, slots=True)
class Known:
    """A request as remembered. `outcome` is the JSON of the outcome, None while there is none;
    `accepted` the accepted event's value, only in the answers of `get` and `accept`."""

    request_id: str
    content_sha256: str | None
    status: Status
    accepted: bytes | None = None
    outcome: bytes | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """A terminal outcome to be projected."""

    request_id: str
    status: Status
    outcome: bytes


class RequestStore(Protocol):
    """Shared by all replicas. Raises Pause while the database is away."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def announce(self, request_id: str, content_sha256: str, now_ms: int) -> Known:
        """Remember that a request was submitted, or return what stands there."""
        ...

    async def reopen(self, request_id: str) -> None:
        """Forget the failure of a request that was dead-lettered before it was accepted."""
        ...

    async def accept(
        self, request_id: str, content_sha256: str, accepted: bytes, now_ms: int
    ) -> Known:
        """Remember the accepted event, or return what stands there; the first one stays. A
        dead-lettered request is pending again."""
        ...

    async def conclude(self, endings: Sequence[Ending], now_ms: int) -> None:
        """Project outcomes in one transaction. The first stays, but a signed score replaces a
        failure: a dead letter that was replayed ends well. The accepted event of a request that
        has ended is dropped, nothing will ask for it again."""
        ...

    async def get(self, request_id: str) -> Known | None: ...

    async def status(self, request_id: str) -> Known | None:
        """`get` without the accepted event, which may have megabytes."""
        ...

    async def endings(self, request_ids: Collection[str]) -> list[Known]:
        """Those of the requests that have an outcome."""
        ...

    async def forget(self, before_ms: int) -> int:
        """Drop requests last touched before that time; returns how many."""
        ...
