"""The catalogue of topics, read from `schemas/topics.toml` (DESIGN §1)."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache

from assay.contracts import schema_root
from assay.errors import ContractError

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DEFAULTS = {"partitions", "replication", "retention", "max_bytes", "headroom", "dlq_retention"}
_REQUIRED = {"name", "summary", "key", "producers", "consumers", "sinks"}
_OPTIONAL = {"event", "retention", "max_bytes"}


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. Sizes are bytes, retention is milliseconds."""

    name: str
    event: str
    summary: str
    key: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    sinks: tuple[str, ...]
    partitions: int
    replication: int
    retention_ms: int
    max_bytes: int
    record_bytes: int

    def dead_letter(self, service: str) -> str:
        """Name of the topic that keeps what `service` could not handle."""
        if service not in self.consumers:
            raise ContractError(f"{service} does not consume {self.name}")
        return dead_letter_name(self.name, service)

    def broker_config(self) -> dict[str, str]:
        """Kafka topic settings this entry stands for."""
        return {
            "retention.ms": str(self.retention_ms),
            "max.message.bytes": str(self.record_bytes),
            "cleanup.policy": "delete",
        }


def dead_letter_name(topic: str, service: str) -> str:
    """`<topic>.<service>.dlq` (DESIGN §1)."""
    return f"{topic}.{service}.dlq"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All topics in flow order; `planned` names services that do not exist yet."""

    topics: tuple[Topic, ...]
    planned: frozenset[str]
    dlq_retention_ms: int

    def __getitem__(self, name: str) -> Topic:
        for topic in self.topics:
            if topic.name == name:
                return topic
        raise ContractError(f"no topic named {name!r} in the catalogue")

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.topics)

    def consumed_by(self, service: str) -> tuple[Topic, ...]:
        return tuple(t for t in self.topics if service in t.consumers)

    def kept_by(self, service: str) -> tuple[Topic, ...]:
        return tuple(t for t in self.topics if service in t.sinks)

    def dead_letters(self) -> tuple[Topic, ...]:
        """A dead-letter topic per topic and consumer, with the size of what it must hold."""
        return tuple(
            Topic(
                name=topic.dead_letter(service),
                event=topic.event,
                summary=f"What {service} could not handle, raw, with the reason in its headers.",
                key=topic.key,
                producers=(service,),
                consumers=(),
                sinks=("ingest", "evidence"),
                partitions=topic.partitions,
                replication=topic.replication,
                retention_ms=self.dlq_retention_ms,
                max_bytes=topic.max_bytes,
                record_bytes=topic.record_bytes + 65_536,
            )
            for topic in self.topics
            for service in topic.consumers
        )

    def everything(self) -> tuple[Topic, ...]:
        """What a broker has to hold: topics, then their dead letters."""
        return self.topics + self.dead_letters()


def _duration_ms(text: str) -> int:
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS_MS or not number.isdigit():
        raise ContractError(f"retention {text!r} is not a number followed by s, m, h or d")
    return int(number) * _UNITS_MS[unit]


def parse_catalogue(text: str) -> Catalogue:
    """Catalogue from the TOML text; a missing or unknown key is a ContractError naming it."""
    document = tomllib.loads(text)
    _check_keys("topics.toml", document, required={"defaults", "topic"}, optional={"planned"})
    defaults = document["defaults"]
    _check_keys("[defaults]", defaults, required=_DEFAULTS)
    topics: list[Topic] = []
    for entry in document["topic"]:
        name = str(entry.get("name", "?"))
        _check_keys(f"topic {name}", entry, required=_REQUIRED, optional=_OPTIONAL)
        if any(topic.name == name for topic in topics):
            raise ContractError(f"topic {name} stands in the catalogue twice")
        max_bytes = int(entry.get("max_bytes", defaults["max_bytes"]))
        topics.append(
            Topic(
                name=name,
                event=entry.get("event", name),
                summary=entry["summary"],
                key=entry["key"],
                producers=tuple(entry["producers"]),
                consumers=tuple(entry["consumers"]),
                sinks=tuple(entry["sinks"]),
                partitions=int(defaults["partitions"]),
                replication=int(defaults["replication"]),
                retention_ms=_duration_ms(entry.get("retention", defaults["retention"])),
                max_bytes=max_bytes,
                record_bytes=max_bytes + int(defaults["headroom"]),
            )
        )
    return Catalogue(
        topics=tuple(topics),
        planned=frozenset(document.get("planned", ())),
        dlq_retention_ms=_duration_ms(defaults["dlq_retention"]),
    )


def _check_keys(
    where: str, table: dict[str, object], *, required: set[str], optional: Collection[str] = ()
) -> None:
    if unknown := table.keys() - required - set(optional):
        raise ContractError(f"{where}: unknown keys {sorted(unknown)}")
    if missing := required - table.keys():
        raise ContractError(f"{where}: missing keys {sorted(missing)}")


@cache
def catalogue() -> Catalogue:
    """The catalogue this distribution ships."""
    return parse_catalogue((schema_root() / "topics.toml").read_text(encoding="utf-8"))
