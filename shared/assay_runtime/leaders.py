"""Partitions that nobody leads: all their brokers are away, so they can neither be read nor asked.

aiokafka repeats a question about many partitions for 40 s and then fails it whole if one of them
has no leader, so those are known before anything is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokafka import TopicPartition

from assay_runtime.records import Position

_NOBODY = (None, -1)


def leaderless(consumer: Any, positions: Iterable[Position]) -> tuple[Position, ...]:
    """Those without a leader as far as the client's metadata say; its fetcher renews them for as
    long as it misses one."""
    return tuple(p for p in positions if _leader(consumer, p) in _NOBODY)


def _leader(consumer: Any, position: Position) -> Any:
    return consumer._client.cluster.leader_for_partition(TopicPartition(*position))


def shown(positions: Iterable[Position]) -> str:
    """`no leader for topic/0, topic/3`, for people."""
    return "no leader for " + ", ".join(f"{p.topic}/{p.partition}" for p in sorted(positions))
