"""What ingest remembers of requests: the accepted event, and how each request ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Status = Literal["pending", "signed", "rejected", "dead_lettered"]


@dataclass(frozen=True, slots=True)
class Known:
    """A request as remembered. `accepted` is the accepted event's value, `outcome` the JSON of
    the outcome; None while there is none."""

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

    async def accept(
        self, request_id: str, content_sha256: str, accepted: bytes, now_ms: int
    ) -> Known:
        """Remember the accepted event, or return what stands there; the first one stays."""
        ...

    async def conclude(self, endings: Sequence[Ending], now_ms: int) -> None:
        """Project outcomes in one transaction. The first stays, but a signed score replaces a
        failure: a dead letter that was replayed ends well."""
        ...

    async def get(self, request_id: str) -> Known | None: ...

    async def endings(self, request_ids: Collection[str]) -> list[Known]:
        """Those of the requests that have ended."""
        ...

    async def forget(self, before_ms: int) -> int:
        """Drop requests last touched before that time; returns how many."""
        ...
