"""What both HTTP APIs do with a request: announce it, publish it once, wait for how it ends."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog
from fastapi import Request

from assay.envelope import Message
from assay.ids import request_id
from assay.submission import SubmissionError
from assay.topics import catalogue
from assay_runtime.failures import DeadLetter, Stop
from assay_runtime.publisher import Publisher
from assay_runtime.tracing import new_trace, parse_traceparent
from services.ingest.results import Waiting
from services.ingest.store import Known, Owner, RequestStore

log = structlog.get_logger()

_MOST_BYTES = {topic.name: topic.max_bytes for topic in catalogue()}
_MAX_KEY = 255
_PUBLISH_S = 10.0


class OtherContent(Exception):
    """The Idempotency-Key was used before with other content."""

    def __init__(self, request_id: str) -> None:
        super().__init__("this Idempotency-Key was used before with other content")
        self.request_id = request_id


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller asks for. `event_id` is the Idempotency-Key or a fresh id, `identity` the
    request id that tenant, source and it make."""

    event_id: str
    identity: str
    content_sha256: str
    owner: Owner | None = None


class Asking:
    """One per service, so that all requests share the places to wait in."""

    def __init__(
        self, store: RequestStore, waiting: Waiting, publisher: Publisher, max_waiting: int
    ) -> None:
        self._store = store
        self._waiting = waiting
        self._publisher = publisher
        self._max_waiting = max_waiting
        self._broken: Stop | None = None
        self._broke = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether as many wait as may."""
        return len(self._waiting) >= self._max_waiting

    async def known(self, identity: str) -> Known | None:
        """What is remembered of a request; Pause while the store is away."""
        return await self._store.status(identity)

    async def submit(
        self,
        request: Request,
        asked: Asked,
        message: Message,
        may_be_tried_again: Callable[[Known], bool] = lambda known: False,
    ) -> Known:
        """Announce and publish. What has ended, or has an owner and stands on the bus already, is
        not published again.

        Raises OtherContent; Pause, TimeoutError or Stop where store or broker are away;
        DeadLetter, with nothing announced, for a message that its topic would not take.
        """
        self._publisher.check(message)
        if (size := len(message.value)) > (most := _MOST_BYTES[message.topic]):
            reason = f"the event has {size:,} bytes; {message.topic} takes {most:,}"
            raise DeadLetter(reason, code="output_too_large")  # as its reader would refuse it
        now_ms = time.time_ns() // 1_000_000
        known = await self._store.announce(
            asked.identity, asked.content_sha256, now_ms, asked.owner
        )
        if known.content_sha256 != asked.content_sha256:
            raise OtherContent(asked.identity)
        if may_be_tried_again(known):
            await self._store.reopen(asked.identity)
            known = replace(known, status="pending", outcome=None)
        if known.outcome is None and not known.published:
            await self._publish(request, asked, message)
            if asked.owner is not None:
                await self._store.published(asked.identity)
        return known

    async def ended(self, request: Request, known: Known, wait_s: float) -> Known:
        """The request once it has ended; as it was after `wait_s`, or when the client has gone:
        what nobody waits for must not hold one of the places."""
        if known.outcome is not None:
            return known
        waiting = self._waiting.outcome(known.request_id, wait_s)
        outcome = asyncio.create_task(waiting)
        gone = asyncio.create_task(_disconnected(request))
        try:
            await asyncio.wait((outcome, gone), return_when=asyncio.FIRST_COMPLETED)
            return (await outcome or known) if outcome.done() else known
        finally:
            outcome.cancel()
            gone.cancel()
            await asyncio.gather(outcome, gone, return_exceptions=True)

    async def watch(self) -> None:
        """Raises Stop once the publisher is beyond repair; only a restart helps then."""
        await self._broke.wait()
        if self._broken is not None:
            raise self._broken

    async def _publish(self, request: Request, asked: Asked, message: Message) -> None:
        parent = parse_traceparent(request.headers.get("traceparent"))
        span = parent.child() if parent else new_trace()
        try:
            async with asyncio.timeout(_PUBLISH_S):
                await self._publisher.publish([(message, span.traceparent)])
        except Stop as error:
            self._broken = error
            self._broke.set()
            raise
        log.info("submission_published", topic=message.topic, request_id=asked.identity,
                 trace_id=span.trace_id)  # fmt: skip


def identified(request: Request, tenant: str, source: str) -> tuple[str, str]:
    """(event id, request id): the same for the same Idempotency-Key of the same tenant.

    SubmissionError for a key that is none.
    """
    key = request.headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= _MAX_KEY and key.isprintable()):
        raise SubmissionError(
            "bad_idempotency_key",
            "Idempotency-Key",
            f"Idempotency-Key has 1 to {_MAX_KEY} printable characters",
        )
    event_id = key or str(uuid.uuid4())
    return event_id, request_id(tenant, source, event_id)


def wished_s(request: Request, longest_s: float) -> float:
    """The longest time to wait, or less where `Prefer: wait=SECONDS` (RFC 7240) asks so."""
    for preference in request.headers.get("prefer", "").split(","):
        name, _, seconds = preference.strip().partition("=")
        # A header has any of the first 256 characters, ² among them, which is a digit to Python.
        if name.lower() == "wait" and seconds.isascii() and seconds.isdecimal():
            return min(float(seconds), longest_s)
    return longest_s


async def _disconnected(request: Request) -> None:
    """Returns when the client has closed the connection; the body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
