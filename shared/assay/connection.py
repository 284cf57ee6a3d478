"""Connecting to Kafka, and saying plainly when that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError

from assay.errors import BrokerError

FLUSH_S = 5.0


def idempotent_producer(
    bootstrap: str, *, max_request_size: int = 8_388_608, **settings: Any
) -> AIOKafkaProducer:
    """A producer, not started yet. A plain one's retries overtake each other on new topics."""
    return AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        acks="all",
        compression_type="zstd",
        linger_ms=5,
        max_request_size=max_request_size,
        **settings,
    )


async def stopped(producer: AIOKafkaProducer, flush_s: float = FLUSH_S) -> None:
    """Stop a producer; an idempotent one never gives up on a batch by itself, not even to close."""
    with suppress(TimeoutError):
        async with asyncio.timeout(flush_s):
            await producer.stop()


async def connected(
    start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]], bootstrap: str
) -> None:
    """Start a client; what cannot start is stopped again, or aiokafka complains at exit."""
    try:
        await start()
    except (KafkaError, OSError) as error:
        await stop()
        detail = (
            "" if isinstance(error, KafkaConnectionError) else f": {error or type(error).__name__}"
        )
        raise BrokerError(f"no Kafka answers at {bootstrap}{detail}") from error
    except BaseException:
        await stop()
        raise
