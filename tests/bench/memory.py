"""Memory of a pass-through hop with a million records behind it, on real Kafka.

The peak that the kernel saw (VmHWM) from the start of the process until it has worked off a
tenth: what it holds does not depend on how much is still to come.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.chain import COMMANDS
from tests.bench.chain_events import rows
from tests.bench.hop_chain import HopChain

BACKLOG = 1_000_000
PARTITIONS = 12
GOAL_MB = 150.0
_DISTINCT = 20_000
_FEED = 100_000
_PATIENCE_S = 300.0


def measure(
    bootstrap: str, folder: Path, say: Callable[[str], None], *, backlog: int = BACKLOG
) -> dict[str, Any]:
    """Megabytes; the backlog is written before the service starts."""
    some = list(rows(_DISTINCT))
    chain = HopChain(
        bootstrap, "memory", COMMANDS["chain"], folder, partitions=PARTITIONS, hops=1, idle=True
    )
    with chain:
        left = backlog
        supply = itertools.cycle(some)
        while left:
            portion = min(left, _FEED)
            chain.feed(list(itertools.islice(supply, portion)))
            left -= portion
        assert chain.count(chain.topics[0]) == backlog
        say(f"memory: {backlog} records written, the service starts")
        chain.launch()
        started = time.monotonic()
        ended = chain.await_output(backlog // 10, _PATIENCE_S)
        [usage] = chain.usage()
    return {
        "backlog": backlog,
        "event_bytes": len(some[0].value),
        "partitions": PARTITIONS,
        "worked_off": backlog // 10,
        "seconds": round(ended - started, 1),
        "rss_mb": round(usage.rss_mb, 1),
        "peak_rss_mb": round(usage.peak_rss_mb, 1),
        "goal_mb": GOAL_MB,
    }
