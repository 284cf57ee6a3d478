"""FastStream as its documentation shows it: a typed subscriber and a publisher, at least once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage, KafkaResponse

from assay.events import WalletFeaturesExtracted
from assay_runtime import compression, garbage
from tests.bench.hops import hop_arguments as shared

compression.install()


def build(hop: shared.HopArguments) -> FastStream:
    broker = KafkaBroker(
        hop.bootstrap,
        acks="all",
        enable_idempotence=True,
        compression_type=shared.COMPRESSION,
        log_level=logging.WARNING,
    )

    @broker.subscriber(
        hop.source,
        group_id=hop.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
        fetch_max_wait_ms=shared.FETCH_WAIT_MS,
    )
    @broker.publisher(hop.sink)
    async def pass_on(event: WalletFeaturesExtracted, message: KafkaMessage) -> Any:
        return KafkaResponse(event, key=message.raw_message.key, headers=message.headers)

    return FastStream(broker, after_startup=[garbage.settle])


if __name__ == "__main__":
    asyncio.run(build(shared.hop_arguments()).run())
