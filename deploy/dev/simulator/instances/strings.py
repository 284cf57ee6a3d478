"""Texts that meet lengths, patterns and formats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from deploy.dev.simulator.instances.demands import Demands
from deploy.dev.simulator.instances.failures import Unsatisfiable
from deploy.dev.simulator.instances.formats import FORMATS
from deploy.dev.simulator.instances.patterns import portable, sample

MOST_CHARACTERS = 1_000_000
_TYPICAL = 24
_WORDS = (
    "account", "activity", "balance", "borrow", "chain", "history", "ledger", "lending", "market",
    "pool", "position", "protocol", "record", "repay", "reserve", "share", "steady", "supply",
    "token", "transfer", "value", "volume", "wallet", "yield",
)  # fmt: skip


def text(demands: Demands, rng: Random) -> str:
    """One text; Unsatisfiable names what no draw could meet."""
    least = int(demands.limits.get("minLength", 0))
    most = int(demands.limits.get("maxLength", max(least, MOST_CHARACTERS)))
    if least > min(most, MOST_CHARACTERS):
        raise Unsatisfiable("minLength")
    if demands.patterns:
        return _matching(demands.patterns, least, most, rng)
    for name in demands.formats:
        if name in FORMATS:
            return _formatted(name, least, most, rng)
    return words(least, most, rng)


def words(least: int, most: int, rng: Random) -> str:
    """Plain words of `least` to `most` characters, about 24 if allowed."""
    wanted = min(most, max(least, _TYPICAL))
    found = rng.choice(_WORDS)
    while len(found) < wanted - 6:
        found += " " + rng.choice(_WORDS)
    found = found[:wanted].strip()
    return found + "".join(rng.choices("abcdefghij", k=max(0, least - len(found))))


def _formatted(name: str, least: int, most: int, rng: Random) -> str:
    for size in (8, *range(1, 60), least):
        found = FORMATS[name](rng, size)
        if least <= len(found) <= most:
            return found
    raise Unsatisfiable("maxLength" if len(FORMATS[name](rng, 1)) > most else "minLength")


def _matching(patterns: list[str], least: int, most: int, rng: Random) -> str:
    try:
        compiled = [re.compile(portable(pattern)) for pattern in patterns]
    except re.error:
        raise Unsatisfiable("pattern") from None
    for draw in _draws(patterns, least, most, rng):
        filler = "a" * (least - len(draw))
        for found in (draw, draw + filler, filler + draw) if filler else (draw,):
            if least <= len(found) <= most and all(one.search(found) for one in compiled):
                return found
    raise Unsatisfiable("pattern")


def _draws(patterns: list[str], least: int, most: int, rng: Random) -> Iterator[str]:
    """Natural lengths first, then every length in turn, then many for look-arounds."""
    for reach in (4, 4, 8, 16, 2, 1, 0, 32):
        for pattern in patterns:
            yield sample(pattern, rng, reach)
        if len(patterns) > 1:
            yield "".join(sample(pattern, rng, reach) for pattern in patterns)
    for reach in range(max(0, least - 100), min(most, least + 300) + 1):
        for pattern in patterns:
            yield sample(pattern, rng, reach, exactly=True)
    for _ in range(300):
        for pattern in patterns:
            yield sample(pattern, rng, 12)
