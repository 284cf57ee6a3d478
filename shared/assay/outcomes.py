"""Following on the bus how requests end (SPEC X.2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Literal, Self

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from assay.connection import connected
from assay.endings import ACCEPTED, REJECTED, SIGNED, Outcome, read_outcome
from assay.errors import BrokerError
from assay.topics import catalogue

__all__ = ["Outcome", "Outcomes", "read_outcome"]

_FETCH_WAIT_MS = 100
_METADATA_S = 30
_SILENT_S = 30

log = logging.getLogger(__name__)


class Outcomes:
    """Reads terminal outcomes from the bus, without a consumer group; an async context manager.
    BrokerError on entering where Kafka or its topics are not there.

    `start` is "earliest" or "latest": from the oldest record kept, or from what comes after
    entering. `scores_only` leaves everything else out.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        start: Literal["earliest", "latest"] = "latest",
        scores_only: bool = False,
    ) -> None:
        self._start = start
        self._bootstrap = bootstrap
        self._topics = [SIGNED]
        if not scores_only:
            dead_letters = (topic.name for topic in catalogue().dead_letters())
            self._topics += [ACCEPTED, REJECTED, *dead_letters]
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            max_partition_fetch_bytes=8_388_608,
        )

    async def __aenter__(self) -> Self:
        await connected(self._start_reading, self._consumer.stop, self._bootstrap)
        return self

    async def _start_reading(self) -> None:
        await self._consumer.start()
        present = set(self._topics) & await self._consumer.topics()
        if SIGNED not in present:
            raise BrokerError(f"Kafka at {self._bootstrap} has no topic {SIGNED}")
        # Without a group every partition of the topics is assigned, once their metadata came.
        self._consumer.subscribe(sorted(present))
        async with asyncio.timeout(_METADATA_S):
            while {tp.topic for tp in self._consumer.assignment()} != present:
                await asyncio.sleep(0.01)
        tps = self._consumer.assignment()
        offsets = (
            await self._consumer.beginning_offsets(tps)
            if self._start == "earliest"
            else await self._consumer.end_offsets(tps)
        )
        for tp, offset in offsets.items():
            self._consumer.seek(tp, offset)

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def kept(self) -> AsyncIterator[Outcome]:
        """What stands on the bus by now, from where reading began; what comes later is left to
        the iteration. BrokerError where Kafka falls silent."""
        clock = asyncio.get_running_loop().time
        try:
            ends = await self._consumer.end_offsets(self._consumer.assignment())
            at, since = dict.fromkeys(ends, -1), clock()
            while True:
                before, at = at, {tp: await self._consumer.position(tp) for tp in ends}
                if all(at[tp] >= end for tp, end in ends.items()):
                    return
                since = clock() if at != before else since
                if clock() - since > _SILENT_S:
                    raise BrokerError(f"Kafka at {self._bootstrap} sends no more records")
                for outcome in await self._fetched():
                    yield outcome
        except KafkaError as error:
            raise BrokerError(f"Kafka at {self._bootstrap}: {error!r}") from error

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        while True:
            for outcome in await self._fetched():
                yield outcome

    async def _fetched(self) -> list[Outcome]:
        """The outcomes of one fetch, which may be none."""
        outcomes = []
        for tp, records in (await self._consumer.getmany(timeout_ms=_FETCH_WAIT_MS)).items():
            for record in records:
                try:
                    outcome = read_outcome(tp.topic, record.value or b"", record.headers)
                except ValueError:
                    # No service of ours wrote it; the outcomes behind it are still wanted.
                    log.warning("passed over what is no outcome: %s partition %d offset %d",
                                tp.topic, tp.partition, record.offset)  # fmt: skip
                    continue
                if outcome is not None:
                    outcomes.append(outcome)
        return outcomes
