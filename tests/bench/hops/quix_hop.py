"""quixstreams with the same pydantic model: validated and written anew at every hop.

It runs in an environment of its own (tests/bench/rivals.py), because quixstreams pins older
pydantic and confluent-kafka than the project.
"""

from __future__ import annotations

import logging

from quixstreams import Application

from assay.events import WalletFeaturesExtracted
from assay_runtime import garbage
from tests.bench.hops import hop_arguments as shared


def build(hop: shared.HopArguments) -> Application:
    app = Application(
        broker_address=hop.bootstrap,
        consumer_group=hop.group,
        auto_offset_reset="earliest",
        processing_guarantee="at-least-once",
        commit_interval=shared.COMMIT_S,
        auto_create_topics=False,
        loglevel=logging.WARNING,
        consumer_extra_config={"fetch.wait.max.ms": shared.FETCH_WAIT_MS},
        producer_extra_config={
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": shared.LINGER_MS,
            "batch.size": shared.BATCH_BYTES,
            "compression.type": shared.COMPRESSION,
            "compression.level": shared.COMPRESSION_LEVEL,
        },
    )
    source = app.topic(hop.source, value_deserializer="bytes")
    sink = app.topic(hop.sink, value_serializer="bytes")
    stream = app.dataframe(source)
    stream = stream.apply(WalletFeaturesExtracted.model_validate_json)
    stream = stream.apply(lambda event: event.model_dump_json().encode())
    stream.to_topic(sink)
    garbage.settle()
    return app


if __name__ == "__main__":
    build(shared.hop_arguments()).run()
