"""What ingest remembers: of requests the accepted event and how each ended, of processes which
version had which content."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol, Self

from assay_runtime.records import Position

Status = Literal["pending", "signed", "accepted", "rejected", "dead_lettered"]

NO_POSITIONS: Mapping[Position, int] = MappingProxyType({})

# A repeat of such a request has nothing left to do. A dead-lettered one may be tried again.
ENDED: frozenset[Status] = frozenset({"signed", "accepted", "rejected"})


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose request it is, where it came through the Intelligence API, and of which process."""

    tenant: str
    process: str


@dataclass(frozen=True, slots=True)
class Known:
    """A request as remembered. `outcome` is the JSON of the outcome, None while there is none;
    `accepted` the accepted event's value, only in the answers of `get` and `accept`; `published`
    whether an owner's request is known to stand on the bus."""

    request_id: str
    content_sha256: str | None
    status: Status
    accepted: bytes | None = None
    outcome: bytes | None = None
    owner: Owner | None = None
    published: bool = False

    @classmethod
    def of_row(
        cls,
        request_id: str,
        content_sha256: str | None,
        status: Status,
        accepted: bytes | None,
        outcome: bytes | None,
        tenant: str | None,
        process: str | None,
        published: bool | int,
    ) -> Self:
        """From a row of the table; tenant and process are both there or both not."""
        owner = Owner(tenant, process) if tenant is not None and process is not None else None
        return cls(request_id, content_sha256, status, accepted, outcome, owner, bool(published))


@dataclass(frozen=True, slots=True)
class Ending:
    """A terminal outcome to be projected. With `owned_only` it counts only for a request that was
    announced with an owner: what nobody here asked for is not kept."""

    request_id: str
    status: Status
    outcome: bytes
    owned_only: bool = False


class RequestStore(Protocol):
    """Shared by all replicas. Raises Pause while the database is away."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def announce(
        self, request_id: str, content_sha256: str, now_ms: int, owner: Owner | None = None
    ) -> Known:
        """Remember that a request was submitted, or return what stands there."""
        ...

    async def published(self, request_id: str) -> None:
        """Remember that the request stands on the bus, so that a repeat is not published."""
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

    async def conclude(
        self,
        endings: Sequence[Ending],
        now_ms: int,
        positions: Mapping[Position, int] = NO_POSITIONS,
    ) -> None:
        """Project outcomes, and keep the offsets to read next, in one transaction. The first stays,
        but a signed score or an accepted answer replaces a failure, and a rejection a dead letter:
        one that was replayed ends so or well. In whatever order the topics are read, the same kind
        of end remains. The accepted event of a request that has ended is dropped, nothing will ask
        for it again."""
        ...

    async def positions(self, wanted: Collection[Position]) -> dict[Position, int]:
        """The offsets to read next, of the partitions that have one."""
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

    async def used_versions(self) -> Mapping[tuple[str, str], str]:
        """The hash that each (process id, version) had when it was first used."""
        ...

    async def use_versions(self, hashes: Mapping[tuple[str, str], str], now_ms: int) -> None:
        """Remember these hashes; one that stands there already stays. They are never forgotten."""
        ...
