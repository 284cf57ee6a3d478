"""FastStream used lean: batches, pydantic once per event, one gather of sends and one commit per
batch.

The handler takes the decoded batch as it is (`apply_types=False`: no dependency injection, whose
every context parameter costs a thread), the decoder is a coroutine, and the sends are the
client's own: the broker's wrap each message, and its batches choose a partition without the key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage

from assay.events import WalletFeaturesExtracted
from assay_runtime import compression, garbage
from tests.bench.hops import hop_arguments as shared
from tests.bench.hops.floor import producer_of

compression.install()
# An empty poll waits this long a second time, asleep.
_POLL_MS = 10


class Passing(NamedTuple):
    """A validated event with what stands around it."""

    event: WalletFeaturesExtracted
    key: bytes | None
    headers: list[tuple[str, bytes]]


async def decode(batch: KafkaMessage) -> list[Passing]:
    records: Any = batch.raw_message
    validated = WalletFeaturesExtracted.model_validate_json
    return [Passing(validated(r.value), r.key, list(r.headers)) for r in records]


def build(hop: shared.HopArguments) -> FastStream:
    """Inside a running loop, which the producer wants."""
    broker = KafkaBroker(hop.bootstrap, apply_types=False, log_level=logging.WARNING)
    producer = producer_of(hop)

    @broker.subscriber(
        hop.source,
        batch=True,
        decoder=decode,
        max_records=shared.MAX_RECORDS,
        batch_timeout_ms=_POLL_MS,
        group_id=hop.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
        fetch_max_wait_ms=shared.FETCH_WAIT_MS,
    )
    async def pass_on(batch: list[Passing]) -> None:
        confirmations = [
            await producer.send(
                hop.sink,
                passing.event.model_dump_json().encode(),
                key=passing.key,
                headers=passing.headers,
            )
            for passing in batch
        ]
        await asyncio.gather(*confirmations)

    @asynccontextmanager
    async def publishing() -> AsyncIterator[None]:
        await producer.start()
        try:
            yield
        finally:
            await producer.stop()

    return FastStream(broker, lifespan=publishing, after_startup=[garbage.settle])


async def run(hop: shared.HopArguments) -> None:
    await build(hop).run()


if __name__ == "__main__":
    asyncio.run(run(shared.hop_arguments()))
