"""Latency at low load: one event at a time through five hops on real Kafka.

From just before the event is handed to the publisher's producer until a consumer of the last
topic has it in hand, both in this process, so one clock. The first seconds, in which the broker's
JVM and every connection are cold, are told apart from the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.bench.chain import COMMANDS
from tests.bench.chain_events import Row, rows
from tests.bench.figures import percentile
from tests.bench.hop_chain import HOPS, HopChain

PER_SECOND = 50.0
FED_FIRST = 100
COLD = 500  # events at the stated rate before the figures that have goals
GOAL_P50_MS, GOAL_P99_MS = 15.0, 50.0
_PATIENCE_S = 30.0


def measure(bootstrap: str, folder: Path, *, events: int = 1_000) -> dict[str, Any]:
    """Milliseconds through five hops at 50 events a second."""
    with HopChain(bootstrap, "latency", COMMANDS["chain"], folder) as chain:
        chain.feed(list(rows(FED_FIRST, seed=2)))
        chain.await_output(FED_FIRST)
        source, sink = chain.topics[0], chain.topics[-1]
        work = list(rows(COLD + events))
        found = asyncio.run(_timed(bootstrap, source, sink, work, PER_SECOND))
    cold, ranked = sorted(found[:COLD]), sorted(found[COLD:])
    return {
        "events": events,
        "per_second": PER_SECOND,
        "hops": HOPS,
        "p50_ms": round(percentile(ranked, 0.50), 2),
        "p90_ms": round(percentile(ranked, 0.90), 2),
        "p99_ms": round(percentile(ranked, 0.99), 2),
        "max_ms": round(ranked[-1], 2),
        "cold": {
            "events": COLD,
            "p50_ms": round(percentile(cold, 0.50), 2),
            "p99_ms": round(percentile(cold, 0.99), 2),
        },
        "goal_ms": {"p50": GOAL_P50_MS, "p99": GOAL_P99_MS},
    }


async def _timed(
    bootstrap: str, source: str, sink: str, work: Sequence[Row], per_second: float
) -> list[float]:
    """Milliseconds of each event, in the order of the work."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=0)
    consumer = AIOKafkaConsumer(
        sink, bootstrap_servers=bootstrap, auto_offset_reset="latest", fetch_max_wait_ms=500
    )
    await producer.start()
    await consumer.start()
    await consumer.seek_to_end()
    for tp in consumer.assignment():
        await consumer.position(tp)
    started: dict[bytes, float] = {}
    latencies: dict[bytes, float] = {}
    reader = asyncio.create_task(_read(consumer, started, latencies, len(work)))
    try:
        begin = time.perf_counter()
        for number, row in enumerate(work):
            await asyncio.sleep(max(0.0, begin + number / per_second - time.perf_counter()))
            started[row.key] = time.perf_counter()
            await producer.send(source, value=row.value, key=row.key, headers=row.headers)
        async with asyncio.timeout(_PATIENCE_S):
            await reader
    finally:
        reader.cancel()
        await asyncio.wait([reader])
        await consumer.stop()
        await producer.stop()
    return [latencies[row.key] for row in work]


async def _read(
    consumer: AIOKafkaConsumer,
    started: dict[bytes, float],
    latencies: dict[bytes, float],
    wanted: int,
) -> None:
    """Every event has a wallet of its own, so the key names it."""
    while len(latencies) < wanted:
        for records in (await consumer.getmany(timeout_ms=1_000)).values():
            now = time.perf_counter()
            latencies.update((r.key, (now - started[r.key]) * 1000) for r in records)
