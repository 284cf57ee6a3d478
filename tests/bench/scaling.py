"""Scores per second of the chain against partitions and replicas, on real Kafka.

All processes and the broker share one machine, so what more processes could do on more machines
does not show here; what must not show is a loss from more partitions that the floor does not have.
Every replica has joined before the warm-up, so nothing may come out twice here either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.chain import COMMANDS, FLOOR, OURS, run_once
from tests.bench.chain_check import check
from tests.bench.chain_events import rows
from tests.bench.hop_chain import HopChain

PARTITIONS = (1, 4, 12)
REPLICAS = (1, 2)
_WARM_UP = 500


def measure(
    bootstrap: str, folder: Path, say: Callable[[str], None], *, events: int = 20_000
) -> dict[str, Any]:
    """A rate per number of partitions and of replicas of every hop, beside the floor's."""
    work, warm_up = list(rows(events)), list(rows(_WARM_UP, seed=2))
    cells: list[dict[str, Any]] = []
    for replicas, partitions in _wanted(REPLICAS, PARTITIONS):
        found = {}
        for variant in (FLOOR, OURS):
            name = f"scaling.{variant}.{partitions}.{replicas}"
            with HopChain(
                bootstrap, name, COMMANDS[variant], folder, partitions=partitions, replicas=replicas
            ) as chain:
                found[variant] = run_once(chain, warm_up, work)
                check(bootstrap, chain.topics[-1], [*warm_up, *work])
        ours, floor = found[OURS], found[FLOOR]
        say(
            f"scaling: {partitions} partitions, {replicas} replicas: {ours['per_s']:.0f}/s, "
            f"floor {floor['per_s']:.0f}/s"
        )
        cells.append(
            {
                "partitions": partitions,
                "replicas": replicas,
                "per_s": round(ours["per_s"], 1),
                "cpu_us": round(ours["cpu_us"], 2),
                "floor_per_s": round(floor["per_s"], 1),
                "floor_cpu_us": round(floor["cpu_us"], 2),
            }
        )
    return {"events": events, "cells": cells}


def _wanted(replicas: Sequence[int], partitions: Sequence[int]) -> list[tuple[int, int]]:
    """A replica without a partition does nothing, so there is no row for it."""
    return [(r, p) for r in replicas for p in partitions if r <= p]
