"""Stopping aiokafka's consumer, whatever its fetcher is at."""

from __future__ import annotations

import asyncio

import pytest

from assay_runtime.consumer import group_consumer, stop
from assay_runtime.settings import KafkaSection
from deploy.dev.broker import EmbeddedBroker


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_fetch_that_waits_to_be_repeated(cancelled: bool) -> None:
    """Its cancellation is aiokafka's own: the stop goes on to the end. One from outside is not."""
    with EmbeddedBroker([("t", 1)]) as broker:
        consumer = group_consumer(KafkaSection(bootstrap=broker.bootstrap), "g", "c")
        consumer.subscribe(["t"])
        await consumer.start()
        connections = [*consumer._client._conns.values()]
        assert connections
        waits = [asyncio.create_task(asyncio.sleep(60)) for _ in range(3)]
        await asyncio.sleep(0)
        # As `_proc_fetch_request` does after a failed fetch.
        consumer._fetcher._pending_tasks |= set(waits)
        stopping = asyncio.create_task(stop(consumer))
        if cancelled:
            await asyncio.sleep(0)
            stopping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopping
            await consumer._client.close()
        else:
            await stopping
            await asyncio.wait(waits, timeout=5)
            assert all(wait.cancelled() for wait in waits)
            assert not any(connection.connected() for connection in connections)
