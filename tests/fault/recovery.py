"""How soon after a fault the part that it met wrote again: read from the topics' times. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fault.faults import AGGREGATOR, BROKER, DISK, MODEL, POSTGRES, Inflicted
from tests.fault.lineage_rules import ACCEPTED, ANSWERED, REQUESTED, VALIDATED
from tests.fault.seen import SIGNED
from tests.fault.topic_reader import TopicLog

# What shows that a part is at work again; evidence writes no topic.
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


def recovery_s(log: TopicLog, inflicted: Inflicted) -> float | None:
    """Seconds from the end of the fault to the part's first record behind it; None where it wrote
    none any more, or does not write."""
    records = log.of(_WRITES.get(inflicted.planned.part, ""))
    later = [r.timestamp_ms for r in records if r.timestamp_ms > inflicted.over_ms]
    return (min(later) - inflicted.over_ms) / 1000 if later else None
