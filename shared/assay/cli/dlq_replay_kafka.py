"""One run of `assay dlq replay`: dead letters back to where they came from.

The ids are the same, so a replay is the same request again, and a second one changes nothing:
request table, ledger and evidence know the id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from assay.cli.dlq_memory_kafka import ReplayMemory
from assay.cli.dlq_outgoing import NotReplayable, Origins, Outgoing, outgoing
from assay.connection import FLUSH_S, connected, idempotent_producer, stopped
from assay.dead_letters import DeadLetterView, Place
from assay.errors import BrokerError

_AT_ONCE = 200
_DEADLINE_S = 60.0


@dataclass(slots=True)
class Tally:
    """What a run did."""

    replayed: int = 0
    refused: list[tuple[Place, str]] = field(default_factory=list)


class Replay:
    """Sends the dead letters of one topic again; an async context manager. `deadline_s` is how
    long Kafka may take to confirm what was sent."""

    def __init__(
        self,
        bootstrap: str,
        origins: Origins,
        memory: ReplayMemory,
        deadline_s: float = _DEADLINE_S,
    ) -> None:
        self._bootstrap = bootstrap
        self._origins = origins
        self._memory = memory
        self._deadline_s = deadline_s
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        self._producer = idempotent_producer(self._bootstrap)
        await connected(self._producer.start, self._producer.stop, self._bootstrap)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._producer is not None:
            await stopped(self._producer, min(FLUSH_S, self._deadline_s))

    async def run(
        self,
        letters: AsyncIterator[DeadLetterView],
        tell: Callable[[DeadLetterView, Outgoing], None],
    ) -> Tally:
        """Send what comes, in its order; what is confirmed is remembered."""
        tally = Tally()
        waiting: list[tuple[Place, Any]] = []
        async for letter in letters:
            place = letter.record.place
            try:
                sending = await outgoing(letter, self._origins)
                waiting.append((place, await self._send(sending)))
            except NotReplayable as reason:
                tally.refused.append((place, str(reason)))
                continue
            tell(letter, sending)
            if len(waiting) >= _AT_ONCE:
                await self._confirm(waiting, tally)
        await self._confirm(waiting, tally)
        return tally

    async def rehearse(
        self,
        letters: AsyncIterator[DeadLetterView],
        tell: Callable[[DeadLetterView, Outgoing], None],
    ) -> Tally:
        """`run` without sending anything; it need not be entered for this."""
        tally = Tally()
        async for letter in letters:
            try:
                tell(letter, await outgoing(letter, self._origins))
            except NotReplayable as reason:
                tally.refused.append((letter.record.place, str(reason)))
            else:
                tally.replayed += 1
        return tally

    async def _confirm(self, waiting: list[tuple[Place, Any]], tally: Tally) -> None:
        if not waiting:
            return
        try:
            async with asyncio.timeout(self._deadline_s):
                for _, sent in waiting:
                    await sent
        except TimeoutError as error:
            raise self._silent() from error
        except KafkaError as error:
            raise BrokerError(f"Kafka at {self._bootstrap} refused a record: {error!r}") from error
        await self._memory.add([place for place, _ in waiting])
        tally.replayed += len(waiting)
        waiting.clear()

    async def _send(self, sending: Outgoing) -> Any:
        assert self._producer is not None, "enter it first"  # noqa: S101
        try:
            async with asyncio.timeout(self._deadline_s):
                known = await self._producer.partitions_for(sending.topic)
                return await self._producer.send(
                    sending.topic,
                    value=sending.value,
                    key=sending.key,
                    headers=list(sending.headers),
                    partition=sending.partition if sending.partition in known else None,
                )
        except TimeoutError as error:
            raise self._silent() from error
        except MessageSizeTooLargeError as error:
            raise NotReplayable(str(error)) from error
        except KafkaError as error:
            raise BrokerError(f"Kafka at {self._bootstrap}: {error!r}") from error

    def _silent(self) -> BrokerError:
        return BrokerError(
            f"Kafka at {self._bootstrap} confirmed nothing for {self._deadline_s:g} s; what it has "
            "all the same is harmless to send again"
        )
