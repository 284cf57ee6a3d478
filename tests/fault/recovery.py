"""How soon after a fault the part that it met worked on: read from the topics' times. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from tests.fault.acts import AGGREGATOR, BROKER, DISK, MODEL, POSTGRES
from tests.fault.faults import Inflicted
from tests.fault.lineage_rules import ACCEPTED, ANSWERED, REQUESTED, VALIDATED
from tests.fault.seen import SIGNED
from tests.fault.topic_reader import TopicLog

# What shows that a part is at work; evidence writes no topic.
_WRITES: Mapping[str, str] = {
    "ingest": ACCEPTED,
    "features": REQUESTED,
    "scorer": ANSWERED,
    "validator": VALIDATED,
    "signer": SIGNED,
    BROKER: SIGNED,
    MODEL: ANSWERED,
    AGGREGATOR: ACCEPTED,
    DISK: SIGNED,
    POSTGRES: SIGNED,
}
# A service that drains, or whose records another replica still has, falls silent a little later.
_LATER_MS = 2_000


def recovery_s(log: TopicLog, inflicted: Inflicted) -> float | None:
    """Seconds from the end of the fault to the end of the longest silence of its part that began
    before the fault was long over; 0 where the part wrote on. None where it wrote nothing any
    more, or does not write."""
    topic = _WRITES.get(inflicted.planned.part, "")
    times = sorted(record.timestamp_ms for record in log.of(topic))
    if not times or times[-1] <= inflicted.over_ms:
        return None
    silences = [
        (since, until)
        for since, until in pairwise(sorted([inflicted.began_ms, *times]))
        if until > inflicted.began_ms and since <= inflicted.over_ms + _LATER_MS
    ]
    longest = max(silences, key=lambda silence: silence[1] - silence[0])
    return max(0, longest[1] - inflicted.over_ms) / 1000
