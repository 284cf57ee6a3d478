"""The catalogue of topics, read from `schemas/topics.toml` (DESIGN §1)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache

from assay.contracts import schema_root
from assay.errors import ContractError

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DEFAULTS = {"partitions", "replication", "retention", "max_bytes", "headroom", "dlq_retention"}
_REQUIRED = {"name", "summary", "key", "producers", "consumers", "sinks"}
_OPTIONAL = {"event", "retention", "max_bytes", "retries"}
_RETRY_TIERS = 3
# Room for what is added to the headers of a record that is kept or postponed.
_ADDED_HEADERS = 65_536
_RETRY_NAME = re.compile(r"(?P<topic>.+)\.[a-z]+\.retry\.[1-9][0-9]*")


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. Sizes are bytes, retention is milliseconds; `retries` are the consumers that may
    postpone a record."""

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
    retries: tuple[str, ...] = ()

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


def retry_name(topic: str, service: str, tier: int) -> str:
    """`<topic>.<service>.retry.<tier>` (DESIGN §1); tiers count from 1."""
    return f"{topic}.{service}.retry.{tier}"


def origin_name(topic: str) -> str:
    """The topic whose records a retry topic carries; any other topic is its own origin."""
    found = _RETRY_NAME.fullmatch(topic)
    return found["topic"] if found else topic


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All topics in flow order; `planned` names services that do not exist yet, `retry_tiers` is
    how often a record may be postponed before it is dead-lettered."""

    topics: tuple[Topic, ...]
    planned: frozenset[str]
    dlq_retention_ms: int
    retry_tiers: int = _RETRY_TIERS

    def __getitem__(self, name: str) -> Topic:
        for topic in self.topics:
            if topic.name == name:
                return topic
        raise ContractError(f"no topic named {name!r} in the catalogue")

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.topics)

    def consumed_by(self, service: str) -> tuple[Topic, ...]:
        return tuple(t for t in self.topics if service in t.consumers)

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
                record_bytes=topic.record_bytes + _ADDED_HEADERS,
            )
            for topic in self.topics
            for service in topic.consumers
        )

    def retries(self) -> tuple[Topic, ...]:
        """The retry topics: one per tier of each consumer that may postpone a record. They hold
        no fact of their own, so nobody keeps them."""
        return tuple(
            Topic(
                name=retry_name(topic.name, service, tier),
                event=topic.event,
                summary=f"What {service} tries again later, raw; wait {tier}.",
                key=topic.key,
                producers=(service,),
                consumers=(service,),
                sinks=(),
                partitions=topic.partitions,
                replication=topic.replication,
                retention_ms=topic.retention_ms,
                max_bytes=topic.max_bytes,
                record_bytes=topic.record_bytes + _ADDED_HEADERS,
            )
            for topic in self.topics
            for service in topic.retries
            for tier in range(1, self.retry_tiers + 1)
        )

    def everything(self) -> tuple[Topic, ...]:
        """Topics, then their dead letters: all that is told and kept."""
        return self.topics + self.dead_letters()

    def on_broker(self) -> tuple[Topic, ...]:
        """What a broker has to hold: everything, and the retry topics."""
        return self.everything() + self.retries()


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
    _check_keys("[defaults]", defaults, required=_DEFAULTS, optional={"retry_tiers"})
    topics: list[Topic] = []
    for entry in document["topic"]:
        name = str(entry.get("name", "?"))
        _check_keys(f"topic {name}", entry, required=_REQUIRED, optional=_OPTIONAL)
        if any(topic.name == name for topic in topics):
            raise ContractError(f"topic {name} stands in the catalogue twice")
        if stray := set(entry.get("retries", ())) - set(entry["consumers"]):
            raise ContractError(f"topic {name}: retries of no consumer {sorted(stray)}")
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
                retries=tuple(entry.get("retries", ())),
            )
        )
    return Catalogue(
        topics=tuple(topics),
        planned=frozenset(document.get("planned", ())),
        dlq_retention_ms=_duration_ms(defaults["dlq_retention"]),
        retry_tiers=int(defaults.get("retry_tiers", _RETRY_TIERS)),
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
