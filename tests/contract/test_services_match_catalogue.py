"""Who reads and writes what: the catalogue and each service's app.py say the same."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.topics import Catalogue, Topic, catalogue, parse_catalogue

REPO = Path(__file__).parents[2]
SERVICES = sorted(path.parent.name for path in (REPO / "services").glob("*/app.py"))


@dataclass(frozen=True)
class Declared:
    """What a service's app.py declares; `projects` are topics it reads without failing on them."""

    consumes: frozenset[str]
    produces: frozenset[str]
    projects: frozenset[str] = frozenset()


def declared(service: str) -> Declared:
    app = importlib.import_module(f"services.{service}.app")
    assert service == app.NAME
    return Declared(
        frozenset(app.CONSUMES), frozenset(app.PRODUCES), frozenset(getattr(app, "PROJECTS", ()))
    )


def waits_for_planned(flow: Catalogue, topic: Topic) -> bool:
    """Whether a topic's producers or its consumers are all planned: then nobody need write it or
    act on it yet, though the sinks keep it."""
    return any(
        services and set(services) <= flow.planned
        for services in (topic.producers, topic.consumers)
    )


def differences(flow: Catalogue, apps: Mapping[str, Declared]) -> list[str]:
    """Every edge that only one side knows."""
    found: list[str] = []
    for topic in flow.everything():
        written = {s for s, app in apps.items() if topic.name in app.produces}
        acted = {s for s, app in apps.items() if topic.name in app.consumes}
        kept = {s for s, app in apps.items() if topic.name in app.projects}
        # A service that acts on no topic at all is a sink, whatever it calls its reading.
        sinks_only = {s for s in apps if not flow.consumed_by(s)}
        kept |= acted & sinks_only
        acted -= sinks_only
        producers = set(topic.producers) - {"anyone"} - flow.planned
        if topic.name.endswith(".dlq"):
            producers = written  # the runtime writes them, by the service's name
        if waits_for_planned(flow, topic):
            producers, acted = written & producers, acted | (set(topic.consumers) - flow.planned)
        for verb, ours, theirs in (
            ("writes", producers, written),
            ("acts on", set(topic.consumers) - flow.planned, acted),
            ("keeps", set(topic.sinks), kept),
        ):
            found += [f"{s} {verb} {topic.name} by topics.toml only" for s in sorted(ours - theirs)]
            found += [f"{s} {verb} {topic.name} by app.py only" for s in sorted(theirs - ours)]
    known = {topic.name for topic in flow.everything()}
    for service, app in apps.items():
        stray = (app.consumes | app.produces | app.projects) - known
        found += [f"{service} names {topic}, which is in no catalogue" for topic in sorted(stray)]
    return found


def test_catalogue_and_services_agree() -> None:
    assert differences(catalogue(), {service: declared(service) for service in SERVICES}) == []


def test_every_service_of_the_catalogue_exists_or_is_planned() -> None:
    """The stated rule for services to come: `planned` in topics.toml, and it must not go stale."""
    flow = catalogue()
    named = {s for t in flow for s in (*t.producers, *t.consumers, *t.sinks)} - {"anyone"}
    assert named - set(SERVICES) == flow.planned
    assert flow.planned.isdisjoint(path.name for path in (REPO / "services").iterdir())


def test_who_has_retry_topics_reads_them() -> None:
    """A record postponed by a service whose catalogue entry is missing would go nowhere."""
    flow = catalogue()
    for service in SERVICES:
        topics = {topic.name for topic in flow if service in topic.retries}
        source = (REPO / "services" / service / "app.py").read_text(encoding="utf-8")
        assert ("retries=" in source) == bool(topics), service
        if topics:
            app = importlib.import_module(f"services.{service}.app")
            settings = importlib.import_module(f"services.{service}.settings")
            built = app.build(getattr(settings, f"{service.capitalize()}Settings")())
            postponing = [p for p in built.pipelines if p.retries]
            assert {topic for p in postponing for topic in p.topics} == topics
            assert {p.retries for p in postponing} == {flow.retry_tiers}


FLOW = """
planned = ["later"]
[defaults]
partitions = 1
replication = 1
retention = "1d"
max_bytes = 1
headroom = 1
dlq_retention = "1d"
[[topic]]
name = "a.b.done.v1"
summary = ""
key = "wallet"
producers = ["anyone"]
consumers = ["one"]
sinks = ["evidence"]
[[topic]]
name = "a.b.asked.v1"
summary = ""
key = "wallet"
producers = ["one"]
consumers = ["later"]
sinks = ["evidence"]
[[topic]]
name = "a.b.scored.v1"
summary = ""
key = "wallet"
producers = ["one", "later"]
consumers = []
sinks = ["evidence", "ingest"]
"""
DLQ = "a.b.done.v1.one.dlq"
KEPT = {"a.b.done.v1", "a.b.asked.v1", "a.b.scored.v1", DLQ, "a.b.asked.v1.later.dlq"}
ONE = Declared(frozenset({"a.b.done.v1"}), frozenset({"a.b.scored.v1"}))
SINK = Declared(frozenset(KEPT), frozenset())
INGEST = Declared(
    frozenset(), frozenset(), frozenset({"a.b.scored.v1", DLQ, "a.b.asked.v1.later.dlq"})
)


def with_one(**changes: set[str]) -> dict[str, Declared]:
    fields = {"consumes": set(ONE.consumes), "produces": set(ONE.produces), **changes}
    one = Declared(**{name: frozenset(topics) for name, topics in fields.items()})
    return {"one": one, "evidence": SINK, "ingest": INGEST}


def test_the_rule_accepts_what_agrees() -> None:
    assert differences(parse_catalogue(FLOW), with_one()) == []


@pytest.mark.parametrize(
    ("apps", "complaint"),
    [
        (with_one(produces=set()), "one writes a.b.scored.v1 by topics.toml only"),
        (with_one(consumes=set()), "one acts on a.b.done.v1 by topics.toml only"),
        (
            with_one(consumes={"a.b.done.v1", "a.b.scored.v1"}),
            "one acts on a.b.scored.v1 by app.py only",
        ),
        (
            with_one(produces={"a.b.scored.v1", "a.b.done.v1"}),
            "one writes a.b.done.v1 by app.py only",
        ),
        (
            with_one(produces={"a.b.scored.v1", "x.y.done.v1"}),
            "one names x.y.done.v1, which is in no",
        ),
        (
            {**with_one(), "evidence": Declared(frozenset(KEPT - {DLQ}), frozenset())},
            f"evidence keeps {DLQ} by topics.toml only",
        ),
    ],
)
def test_the_rule_finds_each_planted_difference(apps: dict[str, Declared], complaint: str) -> None:
    assert any(complaint in line for line in differences(parse_catalogue(FLOW), apps))
