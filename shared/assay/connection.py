"""Connecting to Kafka, and saying plainly when that failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiokafka.errors import KafkaConnectionError, KafkaError

from assay.errors import BrokerError


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
