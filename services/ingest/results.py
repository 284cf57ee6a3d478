"""Terminal outcomes: projected from the bus into the request table, and waited for."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import structlog

from assay.client import read_outcome
from assay.dead_letters import LetterRecord, Place, read_dead_letter
from assay.envelope import text_headers
from assay.events import GenerationRequested
from assay.topics import catalogue
from assay_runtime.failures import Pause
from assay_runtime.records import Delivery, Record
from assay_runtime.seals import TRUSTING, Seals
from assay_runtime.stage import Outcome
from assay_runtime.stored_offsets import StoredOffsets
from services.ingest.store import Ending, Known, RequestStore

log = structlog.get_logger()

_POLL_S = 0.1
# All request ids are made here (DESIGN §2); other text is a client's, and a database may refuse it.
_REQUEST_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_REFUSED_REQUESTS = frozenset(
    topic.name for topic in catalogue().dead_letters() if topic.event == GenerationRequested.type
)


class ResultsHandler:
    """Sink of signed scores, accepted answers, rejections and dead letters.

    Ends of wallet events are kept for whoever published them; those of other requests, of a batch
    or of a client on the bus, only where they came through the Intelligence API. What follows from
    an unsealed request is the end of no request of the table, whatever id its sender wrote on it.
    `offsets` are kept beside the table: one restored from a backup is brought up to date again.
    Ends older than `memory_ms` are forgotten already.
    """

    def __init__(
        self,
        store: RequestStore,
        waiting: Waiting,
        seals: Seals = TRUSTING,
        log_name: str = "",
        memory_ms: int | None = None,
    ) -> None:
        self._store = store
        self._waiting = waiting
        self._seals = seals
        self._memory_ms = memory_ms
        self.offsets = StoredOffsets(
            log_name,
            store.positions,
            lambda offsets: store.conclude([], _now_ms(), offsets),
            # A new table misses nothing, and one of before it kept offsets had what is gone.
            misses_nothing=True,
        )

    async def __call__(self, deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        endings = []
        for delivery in deliveries:
            record = delivery.record
            if self._is_forgotten(record):
                continue
            try:
                outcome = read_outcome(record.topic, record.value or b"", record.headers)
            except ValueError as error:
                # Written by somebody who is no service of ours; there is nobody to tell.
                log.warning("outcome_unreadable", topic=record.topic, offset=record.offset,
                            error=str(error)[:200])  # fmt: skip
                continue
            if outcome is None or _REQUEST_ID.fullmatch(outcome.request_id) is None:
                continue
            if not outcome.unsealed and not self._is_foreign(record):
                endings.append(
                    Ending(
                        outcome.request_id,
                        outcome.status,
                        json.dumps(outcome.to_json()).encode(),
                        owned_only=outcome.status == "accepted" or not _of_wallet(record),
                    )
                )
        await self._store.conclude(endings, _now_ms(), self.offsets.behind(deliveries))
        self._waiting.wake({ending.request_id for ending in endings})
        return [()] * len(deliveries)

    def _is_forgotten(self, record: Record) -> bool:
        """Whether the table would have dropped it by now: of a request's ends, those on topics that
        are kept longer would come back without the others when all is read anew."""
        at = record.timestamp_ms
        return self._memory_ms is not None and 0 <= at < _now_ms() - self._memory_ms

    def _is_foreign(self, record: Record) -> bool:
        """Whether it is the dead letter of a request that no service of ours sealed."""
        if record.topic not in _REFUSED_REQUESTS:
            return False
        place = Place(record.topic, record.partition, record.offset)
        letter = read_dead_letter(
            LetterRecord(place, record.timestamp_ms, record.key, record.value, record.headers)
        )
        event_id = text_headers(letter.headers).get("ce_id", "")
        return self._seals.doubt(event_id, letter.headers, record.value or b"") is not None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _of_wallet(record: Record) -> bool:
    """Whether a wallet event led to the record; a submission that could not be read counts."""
    of_wallet = record.topic.startswith("wallet.")
    return of_wallet or "ce_subject" in text_headers(record.headers)


class Waiting:
    """Requests somebody waits for. The replica that projects an outcome wakes its own waiters at
    once; the others find it in the table at the next poll, a few times a second for all of them
    together."""

    def __init__(self, store: RequestStore) -> None:
        self._store = store
        self._waiters: dict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._ending = False

    def __len__(self) -> int:
        return sum(len(futures) for futures in self._waiters.values())

    async def outcome(self, request_id: str, deadline_s: float) -> Known | None:
        """The ended request, or None after the deadline or when the service ends."""
        end = time.monotonic() + deadline_s
        while True:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters[request_id].add(woken)
            try:
                if ended := await self._store.endings([request_id]):
                    return ended[0]
                if self._ending or (left := end - time.monotonic()) <= 0:
                    return None
                await asyncio.wait([woken], timeout=left)
            finally:
                self._waiters[request_id].discard(woken)
                if not self._waiters[request_id]:
                    del self._waiters[request_id]

    def wake(self, request_ids: set[str]) -> None:
        for request_id in request_ids & self._waiters.keys():
            for waiter in self._waiters[request_id]:
                if not waiter.done():
                    waiter.set_result(None)

    async def poll(self) -> None:
        """Runs for as long as the service does; its end sends everybody away with what there is."""
        try:
            while True:
                await asyncio.sleep(_POLL_S)
                await self._look()
        finally:
            self._ending = True
            self.wake(set(self._waiters))

    async def _look(self) -> None:
        if not self._waiters:
            return
        try:
            ended = await self._store.endings(list(self._waiters))
        except Pause as outage:
            log.warning("results_unreadable", reason=str(outage))
            return
        self.wake({known.request_id for known in ended})
