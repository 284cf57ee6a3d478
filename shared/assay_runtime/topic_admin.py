"""Topics are created once and never altered behind anybody's back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code


class TopicAdminError(Exception):
    """The broker cannot be asked, or refused; the message names the topics and the reasons."""


class TopicsDiffer(TopicAdminError):
    """Topics exist with other properties; `differences` has one line for each."""

    def __init__(self, differences: Sequence[str]) -> None:
        super().__init__("topics differ from the catalogue: " + "; ".join(differences))
        self.differences = tuple(differences)


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it should be; `configs` are Kafka topic settings."""

    name: str
    partitions: int
    replication: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicReport:
    """Names of the topics made now and of those that were there as wanted."""

    created: tuple[str, ...]
    present: tuple[str, ...]


async def ensure_topics(
    bootstrap: str, specs: Sequence[TopicSpec], *, timeout_s: float = 30
) -> TopicReport:
    """Create what is missing and return once every partition has a leader.

    Differing partition counts, replication or settings raise TopicsDiffer before anything is
    created. An unreachable broker or a refusal is TopicAdminError.
    """
    admin = AIOKafkaAdminClient(
        bootstrap_servers=bootstrap, request_timeout_ms=int(timeout_s * 1000)
    )
    try:
        async with asyncio.timeout(timeout_s):
            await admin.start()
            report = await _ensure(admin, specs)
    except TimeoutError as error:
        raise TopicAdminError(f"{bootstrap} did not answer within {timeout_s:g} s") from error
    except KafkaError as error:
        raise TopicAdminError(f"topics cannot be made on {bootstrap}: {error!r}") from error
    finally:
        await admin.close()
    return report


async def _ensure(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> TopicReport:
    existing = await _existing(admin)
    present = [spec for spec in specs if spec.name in existing]
    await _check(admin, present, existing)
    missing = [spec for spec in specs if spec.name not in existing]
    created = await _create(admin, missing)
    # Leaders are elected after the answer, and nothing announces them.
    while {spec.name for spec in specs} - _led(await _existing(admin)):
        await asyncio.sleep(0.05)
    overtaken = [spec for spec in missing if spec.name not in created]
    if overtaken:
        await _check(admin, overtaken, await _existing(admin))
    return TopicReport(
        created=tuple(created),
        present=tuple(spec.name for spec in specs if spec.name not in created),
    )


async def _existing(admin: AIOKafkaAdminClient) -> dict[str, dict[str, Any]]:
    # All topics are listed: asking for one by name may create it where a broker allows that.
    return {topic["topic"]: topic for topic in await admin.describe_topics()}


def _led(existing: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return {
        name
        for name, topic in existing.items()
        if topic["partitions"] and all(p["leader"] >= 0 for p in topic["partitions"])
    }


async def _create(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> list[str]:
    """Names created; one that somebody else created meanwhile is left out."""
    if not specs:
        return []
    response = await admin.create_topics(
        [
            NewTopic(s.name, s.partitions, s.replication, topic_configs=dict(s.configs))
            for s in specs
        ]
    )
    created, refused = [], []
    for name, code, message, *_ in response.topic_errors:
        if code == 0:
            created.append(name)
        elif code != TopicAlreadyExistsError.errno:
            refused.append(f"{name}: {message or for_code(code).__name__}")
    if refused:
        raise TopicAdminError("the broker refused topics: " + "; ".join(refused))
    return created


async def _check(
    admin: AIOKafkaAdminClient,
    specs: Sequence[TopicSpec],
    existing: Mapping[str, Mapping[str, Any]],
) -> None:
    differences = []
    configs = await _configs(admin, specs)
    for spec in specs:
        partitions = existing[spec.name]["partitions"]
        if len(partitions) != spec.partitions:
            differences.append(
                f"{spec.name} has {len(partitions)} partitions, wanted {spec.partitions}"
            )
        replicas = {len(partition["replicas"]) for partition in partitions}
        if partitions and replicas != {spec.replication}:
            shown = "/".join(str(count) for count in sorted(replicas))
            differences.append(f"{spec.name} has {shown} replicas, wanted {spec.replication}")
        for key, wanted in spec.configs.items():
            actual = configs[spec.name].get(key)
            if actual != wanted:
                differences.append(f"{spec.name} has {key}={actual}, wanted {wanted}")
    if differences:
        raise TopicsDiffer(differences)


async def _configs(
    admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]
) -> dict[str, dict[str, str | None]]:
    wanted = [spec for spec in specs if spec.configs]
    found: dict[str, dict[str, str | None]] = {spec.name: {} for spec in specs}
    if not wanted:
        return found
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, spec.name, dict(spec.configs)) for spec in wanted
    ]
    for response in await admin.describe_configs(resources):
        for code, message, _type, name, entries in response.resources:
            if code != 0:
                raise TopicAdminError(f"settings of {name} cannot be read: {message or code}")
            found[name] = {entry[0]: entry[1] for entry in entries}
    return found
