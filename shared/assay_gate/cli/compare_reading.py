"""What a comparison of two process versions takes from each kept event. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.cli.request_table import Attempt, Ending, Kind
from assay.events import (
    GenerationAccepted,
    GenerationAnswered,
    GenerationRejected,
    WalletScoreValidated,
)

_META = (
    "meta.process_id", "meta.process_version", "meta.request_id", "meta.wallet", "meta.step",
    "meta.attempt",
)  # fmt: skip
# Rejections that another event of the same request says the end of.

Items = Callable[[str, list[str]], Iterator[dict[str, Any]]]
"""All items of an event type with these members of their payloads."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: a version, of a process if it is known which."""

    version: str
    process_id: str | None = None

    @classmethod
    def parse(cls, text: str, process_id: str | None) -> Side:
        """`VERSION` or `ID@VERSION`."""
        named, at, version = text.rpartition("@")
        return cls(version, named if at else process_id)

    def __str__(self) -> str:
        return f"{self.process_id}@{self.version}" if self.process_id else self.version


@dataclass(slots=True)
class Seen:
    """What was met on the way: processes by side, and events without a text to read."""

    processes: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    erased: int = 0


def facts(
    items: Items, sides: tuple[Side, Side], score_field: str, seen: Seen
) -> Iterator[Attempt | Ending]:
    """Attempts and endings of both sides, shadows and others alike."""
    wanted = {
        GenerationAnswered.type: [],
        GenerationRejected.type: ["terminal", "ends_as", "empty_result"],
        GenerationAccepted.type: ["final", "fallback", f"output.{score_field}"],
        WalletScoreValidated.type: ["fallback", score_field],
    }
    for kind, members in wanted.items():
        for item in items(kind, [*_META, *members]):
            if "erased" in item:
                seen.erased += 1
                continue
            event = item.get("payload")
            if not isinstance(event, dict) or not isinstance(event.get("meta"), dict):
                continue
            for side in _sides_of(event["meta"], sides):
                seen.processes[side].add(str(event["meta"].get("process_id")))
                fact = _fact(kind, side, item, event, score_field)
                if fact is not None:
                    yield fact


def _sides_of(meta: Mapping[str, Any], sides: tuple[Side, Side]) -> Iterator[int]:
    for number, side in enumerate(sides):
        known = side.process_id is None or side.process_id == meta.get("process_id")
        if known and meta.get("process_version") == side.version:
            yield number


def _fact(
    kind: str, side: int, item: Mapping[str, Any], event: Mapping[str, Any], score_field: str
) -> Attempt | Ending | None:
    meta = event["meta"]
    request = str(meta.get("request_id"))
    if kind == GenerationAnswered.type:
        attempt = meta.get("attempt", 1)
        return Attempt(side, request, str(meta.get("step")), attempt) if _whole(attempt) else None
    ended: Kind = "fallback" if event.get("fallback") is not None else "accepted"
    score: float | None = None
    if kind == GenerationRejected.type:
        followed = event.get("ends_as") == "fallback_score" or event.get("empty_result")
        if followed or not event.get("terminal"):
            return None
        ended = "rejected"
    elif kind == GenerationAccepted.type:
        if event.get("final") is False:
            return None
        score = _score(event.get("output"), score_field)
    else:
        score = _score(event, score_field)
    wallet = meta.get("wallet")
    return Ending(
        side,
        request,
        int(item["cursor"]),
        ended,
        score,
        wallet if isinstance(wallet, str) else None,
    )


def _score(source: Any, path: str) -> float | None:
    for name in path.split("."):
        source = source.get(name) if isinstance(source, dict) else None
    if isinstance(source, bool) or not isinstance(source, int | float):
        return None
    try:
        score = float(source)
    except OverflowError:
        return None
    return score if math.isfinite(score) else None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31
