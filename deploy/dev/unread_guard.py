"""Makes publishers wait before the embedded broker drops what nobody has read yet.

The mock cluster keeps about 5 MB of a partition and then drops the oldest record without a word
(DESIGN §8). Nothing can raise that, but a partition can be made to refuse writes with an error
that every client tries again: so whoever writes to a partition with much unread waits until its
slowest reader has come further, and the wait goes back along the flow to the first publisher.

It looks every `_LOOK_S`, so a client that writes megabytes between two looks can still outrun it;
the runtime then counts and says what was lost.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.produce import ProduceRequest

from assay.topics import catalogue
from deploy.dev.broker import NOT_ENOUGH_REPLICAS, EmbeddedBroker

_LOOK_S = 0.03
# Of the 5 MB; the rest is for what is written between two looks.
_MOST_UNREAD_BYTES = 3_000_000
# Refusals kept in store for a partition; each attempt to write takes one.
_REFUSALS = 8
_LATEST = -1
# Old samples count less and less, so that one giant does not hold a partition for good.
_FADE = 0.95


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


def readers(services: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """The consumer groups that must have read a topic before its records may go."""
    found = {}
    for topic in catalogue():
        groups = {f"assay.{name}" for name in topic.consumers if name in services}
        groups |= {f"assay.{name}" for name in topic.sinks if name in services and name != "ingest"}
        if "ingest" in topic.sinks:
            groups.add("assay.ingest.results")
        if groups:
            found[topic.name] = frozenset(groups)
    return found


class UnreadGuard:
    """Watches the topics of `groups_of` on an embedded broker; `say` is told when it steps in."""

    def __init__(
        self,
        broker: EmbeddedBroker,
        groups_of: Mapping[str, frozenset[str]],
        partitions: int,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._broker = broker
        self._groups_of = groups_of
        self._places = [Place(t, p) for t in sorted(groups_of) for p in range(partitions)]
        self._say = say
        self._ends: dict[Place, int] = {}
        # Lower bounds: offsets of a group only grow.
        self._read: dict[Place, int] = dict.fromkeys(self._places, 0)
        self._record_bytes: dict[Place, float] = dict.fromkeys(self._places, 0.0)
        self._told: set[str] = set()
        self._client: Any = None

    async def run(self) -> None:
        """Until cancelled."""
        self._client = AIOKafkaClient(bootstrap_servers=self._broker.bootstrap)
        await self._client.bootstrap()
        try:
            while True:
                try:
                    await self._look()
                except (KafkaError, OSError) as error:
                    self._say(f"the embedded broker cannot be watched: {error!r}")
                    await asyncio.sleep(1)
                await asyncio.sleep(_LOOK_S)
        finally:
            await self._client.close()

    async def _look(self) -> None:
        ends = await self._latest()
        moved = [place for place in self._places if ends[place] > self._ends.get(place, 0)]
        self._ends = ends
        if moved:
            await self._measure(moved)
        near = [p for p in self._places if self._unread_bytes(p) > _MOST_UNREAD_BYTES / 2]
        if near:
            await self._ask_readers(near)
        for place in near:
            if self._unread_bytes(place) > _MOST_UNREAD_BYTES:
                await self._refuse(place)
                if place.topic not in self._told:
                    self._told.add(place.topic)
                    self._say(f"{place.topic} is full: writers wait for its readers")

    def _unread_bytes(self, place: Place) -> float:
        return (self._ends[place] - self._read[place]) * self._record_bytes[place]

    async def _send(self, request: Any) -> Any:
        return await self._client.send(self._client.get_random_node(), request)

    async def _latest(self) -> dict[Place, int]:
        response = await self._send(OffsetRequest(-1, 0, _by_topic(self._places, (_LATEST,))))
        return {
            Place(topic, answer[0]): answer[-1]
            for topic, answers in response.topics
            for answer in answers
        }

    async def _measure(self, places: list[Place]) -> None:
        """Bytes per record as stored, from the header of each partition's last batch."""
        by_topic: dict[str, list[tuple[int, int, int]]] = {}
        for place in places:
            asked = (place.partition, self._ends[place] - 1, 1)
            by_topic.setdefault(place.topic, []).append(asked)
        response = await self._send(FetchRequest(1, 1, 50_000_000, 0, list(by_topic.items())))
        for topic, answers in response.topics:
            for answer in answers:
                if batch := bytes(answer[-1] or b""):
                    place = Place(topic, answer[0])
                    size = _record_bytes(batch)
                    self._record_bytes[place] = max(size, self._record_bytes[place] * _FADE)

    async def _ask_readers(self, places: list[Place]) -> None:
        asked: dict[str, list[Place]] = {}
        for place in places:
            for group in self._groups_of[place.topic]:
                asked.setdefault(group, []).append(place)
        slowest: dict[Place, int] = {}
        for group, theirs in asked.items():
            response = await self._send(OffsetFetchRequest(group, _by_topic(theirs)))
            for topic, answers in response.topics:
                for partition, offset, *_ in answers:
                    place = Place(topic, partition)
                    slowest[place] = min(slowest.get(place, offset), offset)
        for place, offset in slowest.items():
            self._read[place] = max(self._read[place], offset)

    async def _refuse(self, place: Place) -> None:
        """See to it that some refusals are in store: a write that can never be taken uses one up
        and tells by its error whether there was one."""
        nothing = [(place.topic, [(place.partition, b"\0" * 61)])]
        response = await self._send(ProduceRequest(None, -1, 1_000, nothing))
        code = response.topics[0][1][0][1]
        count = 1 if code == NOT_ENOUGH_REPLICAS else _REFUSALS
        self._broker.refuse_writes(place.topic, place.partition, count)


def _by_topic(places: list[Place], more: tuple[int, ...] | None = None) -> list[Any]:
    """(topic, [partition, …]) or (topic, [(partition, *more), …]) as requests have it."""
    found: dict[str, list[Any]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append((partition, *more) if more else partition)
    return list(found.items())


def _record_bytes(batch: bytes) -> float:
    """Of a record batch v2: its length and how many offsets it spans."""
    (length,) = struct.unpack_from(">i", batch, 8)
    (last,) = struct.unpack_from(">i", batch, 23)
    size: float = (length + 12) / (last + 1)
    return size
