"""What came out of a chain beside what went in, read after the clock has stopped.

The clock counts end offsets, so an event that came twice can hide one that is still under way and
stop it early: neither may be.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import orjson
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.bench.chain_events import Row
from tests.bench.hop_chain import ChainFailed

Came = tuple[bytes | None, bytes | None]
_AT_ONCE = 2_000
_PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Differences:
    """Numbers of events: submitted and not there, there again, with another value, of a key that
    nobody submitted."""

    missing: int = 0
    repeated: int = 0
    changed: int = 0
    unknown: int = 0

    @property
    def any(self) -> bool:
        return self != Differences()

    def __str__(self) -> str:
        counts = {field.name: getattr(self, field.name) for field in fields(self)}
        return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def check(bootstrap: str, topic: str, submitted: Sequence[Row]) -> None:
    """Compare all of the topic with what was submitted; ChainFailed where they differ."""
    found = differences(_records(bootstrap, topic), submitted)
    if found.any:
        raise ChainFailed(f"of {len(submitted)} events on {topic}: {found}")


def differences(came: Iterable[Came], submitted: Sequence[Row]) -> Differences:
    """Every event has a wallet of its own, so the key names it; values are compared as JSON."""
    wanted = {row.key: row.value for row in submitted}
    seen: Counter[bytes] = Counter()
    changed = unknown = 0
    for key, value in came:
        if key is None or key not in wanted:
            unknown += 1
            continue
        seen[key] += 1
        changed += not _same(value, wanted[key])
    return Differences(
        missing=len(wanted) - len(seen),
        repeated=seen.total() - len(seen),
        changed=changed,
        unknown=unknown,
    )


def _same(value: bytes | None, wanted: bytes) -> bool:
    if value == wanted:
        return True
    try:
        return value is not None and _canonical(value) == _canonical(wanted)
    except orjson.JSONDecodeError:
        return False


def _canonical(value: bytes) -> bytes:
    """As bytes, because 1, 1.0 and true are equal as Python's values."""
    return orjson.dumps(orjson.loads(value), option=orjson.OPT_SORT_KEYS)


def _records(bootstrap: str, topic: str) -> Iterator[Came]:
    """Key and value of every record of every partition, as far as the topic goes now."""
    quiet = {"bootstrap.servers": bootstrap, "log_level": 0}
    consumer = Consumer({**quiet, "group.id": f"{topic}.check", "enable.auto.commit": False})
    try:
        extents = _extents(consumer, topic)
        left = sum(end - begin for begin, end in extents.values())
        consumer.assign([TopicPartition(topic, n, begin) for n, (begin, _) in extents.items()])
        while left:
            records = consumer.consume(min(left, _AT_ONCE), timeout=_PATIENCE_S)
            if not records:
                raise ChainFailed(f"{left} records of {topic} cannot be read")
            for record in records:
                if error := record.error():
                    raise KafkaException(error)
                if (record.offset() or 0) < extents[record.partition() or 0][1]:
                    left -= 1
                    yield record.key(), record.value()
    finally:
        consumer.close()


def _extents(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    """First offset and end of each partition; a new one may not have its leader at once."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
                for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions
            }
        except KafkaException:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
