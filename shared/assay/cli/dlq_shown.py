"""Dead letters as lines and JSON. What strangers wrote cannot steer a terminal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from assay.dead_letters import DeadLetterView

_LABEL = 10


@dataclass(slots=True)
class Group:
    """The dead letters of one topic and code; times are milliseconds, size is bytes."""

    topic: str
    code: str
    count: int = 0
    replayed: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    size: int = 0

    def add(self, letter: DeadLetterView, *, replayed: bool) -> None:
        at = letter.record.timestamp_ms
        self.oldest_ms = min(self.oldest_ms, at) if self.count else at
        self.newest_ms = max(self.newest_ms, at)
        self.count += 1
        self.replayed += replayed
        self.size += letter.record.size

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "code": self.code,
            "count": self.count,
            "replayed": self.replayed,
            "oldest": when(self.oldest_ms),
            "newest": when(self.newest_ms),
            "bytes": self.size,
        }


def table(groups: Iterable[Group]) -> Iterator[str]:
    """Lines under their topic, the most frequent code first."""
    topic = ""
    for group in sorted(groups, key=lambda g: (g.topic, -g.count, g.code)):
        if group.topic != topic:
            topic = group.topic
            yield plain(topic)
            heads = f"{'count':>8} {'replayed':>8} {'bytes':>12}  {'oldest':<20}  {'newest':<20}"
            yield f"  {heads}  code"
        yield (
            f"  {group.count:>8} {group.replayed:>8} {group.size:>12,}  {when(group.oldest_ms)}"
            f"  {when(group.newest_ms)}  {plain(group.code)}"
        )


def letter_json(letter: DeadLetterView, *, replayed: bool, full: bool) -> dict[str, Any]:
    """One dead letter; its value only where `full`, as it may hold personal data."""
    place, origin = letter.record.place, letter.origin
    value = letter.record.value or b""
    shown: dict[str, Any] = {
        "topic": place.topic,
        "partition": place.partition,
        "offset": place.offset,
        "at": when(letter.record.timestamp_ms),
        "code": letter.code,
        "reason": letter.reason,
        "pointer": letter.pointer,
        "request_id": letter.request_id,
        "service": letter.service,
        "attempts": letter.attempts,
        "replayed": replayed,
        "origin": None
        if origin is None
        else {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset},
        "key": text(letter.record.key),
        "headers": [[name, text(header)] for name, header in letter.headers],
        "value_bytes": letter.left_out_bytes if letter.left_out_sha256 else len(value),
        "value_sha256": letter.left_out_sha256 or hashlib.sha256(value).hexdigest(),
        "value_kept": letter.left_out_sha256 is None,
    }
    return {**shown, "value": text(value)} if full else shown


def letter_lines(shown: dict[str, Any]) -> Iterator[str]:
    """`letter_json` for a person."""
    origin = shown["origin"]
    yield f"{shown['topic']}/{shown['partition']}@{shown['offset']}  {shown['at']}"
    kept = "" if shown["value_kept"] else ", too large to be kept; it stood at its origin"
    facts = {
        "code": shown["code"],
        "reason": shown["reason"],
        "pointer": shown["pointer"],
        "request": shown["request_id"],
        "service": f"{shown['service'] or 'unknown'}, tries: {shown['attempts']}",
        "origin": origin and f"{origin['topic']}/{origin['partition']}@{origin['offset']}",
        "replayed": "yes" if shown["replayed"] else "no",
        "key": shown["key"],
        "value": f"{shown['value_bytes']:,} bytes, SHA-256 {shown['value_sha256']}{kept}",
    }
    for name, fact in facts.items():
        if fact is not None:
            yield f"  {name:<{_LABEL}}{plain(str(fact))}"
    for name, header in shown["headers"]:
        yield f"  {'header':<{_LABEL}}{plain(name)}: {plain(str(header))}"
    if "value" in shown:
        yield plain(shown["value"], keep="\n\t")
    elif shown["value_kept"]:
        yield "  (--full shows the value, which may hold personal data)"


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def plain(line: str, keep: str = "") -> str:
    """Text without what a terminal would obey."""
    return "".join(
        c if c.isprintable() or c in keep else json.dumps(c)[1:-1] if ord(c) < 0x10000 else "\ufffd"
        for c in line
    )


def when(ms: int) -> str:
    """UTC to the second."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
