"""A real Kafka of the bench's own, warmed up and gone with the bench."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.kafka.broker import Broker

_WARM = "bench.warm"


@contextmanager
def bench_broker() -> Iterator[tuple[str, Path]]:
    """Bootstrap address and a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        broker = Broker(Path(folder) / "kafka", dies_with_parent=True)
        broker.start()
        try:
            _warm_up(broker.bootstrap)
            yield broker.bootstrap, Path(folder)
        finally:
            broker.stop()


def _warm_up(bootstrap: str) -> None:
    """A new broker makes its topics for groups and producer ids when they are first asked for;
    clients that come before that are done are turned away."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(_WARM, 1, 1)])[_WARM].result()
    # librdkafka says on stderr that it has to ask again.
    quiet = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = Producer({**quiet, "enable.idempotence": True})
    producer.produce(_WARM, b"x")
    producer.flush()
    consumer = Consumer({**quiet, "group.id": _WARM, "auto.offset.reset": "earliest"})
    consumer.subscribe([_WARM])
    try:
        while consumer.poll(1.0) is None:
            pass
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
