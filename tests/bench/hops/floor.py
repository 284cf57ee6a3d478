"""The floor: bare aiokafka and orjson, nothing validated, nothing measured, nothing traced.

As fast as this client is used well: idempotent, acks=all, sends in order and one gather per poll,
headers passed on as they came, commits at most ten times a second. Client and Python are as they
come, so zstd has the client's level 3; `tuned_floor` has both tuned as the runtime tunes them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import CommitFailedError, IllegalStateError

from tests.bench.hops import hop_arguments as shared


def producer_of(hop: shared.HopArguments) -> AIOKafkaProducer:
    """The bare client's, not started yet; it wants a running loop."""
    return AIOKafkaProducer(
        bootstrap_servers=hop.bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=shared.LINGER_MS,
        max_batch_size=shared.BATCH_BYTES,
        compression_type=shared.COMPRESSION,
    )


async def run(hop: shared.HopArguments, started: Callable[[], None] = lambda: None) -> None:
    consumer = AIOKafkaConsumer(
        hop.source,
        bootstrap_servers=hop.bootstrap,
        group_id=hop.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=shared.FETCH_WAIT_MS,
    )
    producer = producer_of(hop)
    await producer.start()
    await consumer.start()
    started()
    done, committed_at = {}, 0.0
    while True:
        fetched = await consumer.getmany(timeout_ms=100, max_records=shared.MAX_RECORDS)
        confirmations = []
        for tp, records in fetched.items():
            confirmations += [
                await producer.send(
                    hop.sink,
                    orjson.dumps(orjson.loads(record.value)),
                    key=record.key,
                    headers=list(record.headers),
                )
                for record in records
            ]
            done[tp] = records[-1].offset + 1
        await asyncio.gather(*confirmations)
        if done and time.monotonic() - committed_at >= shared.COMMIT_S:
            # A partition that went to another member is committed by that one.
            with suppress(CommitFailedError, IllegalStateError):
                await consumer.commit(done)
            done, committed_at = {}, time.monotonic()


if __name__ == "__main__":
    asyncio.run(run(shared.hop_arguments()))
