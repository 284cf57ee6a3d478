"""topics.toml: names, completeness, derived dead letters, and a checker that refuses slips
(DESIGN §1, issue item 1)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable

import pytest

from assay.contracts import load_schema, schema_root
from assay.errors import ContractError
from assay.events import EVENTS, InternalEvent
from assay.topics import catalogue, dead_letter_name, origin_name, parse_catalogue, retry_name

TEXT = (schema_root() / "topics.toml").read_text(encoding="utf-8")
KNOWN = {"ingest", "features", "scorer", "validator", "signer", "evidence", "advisor"}
# <domain>.<subject>.<past participle>.v<major>; English has participles that do not end in -ed.
NAME = re.compile(r"[a-z]+\.[a-z]+\.([a-z]+ed|sent|made|built|kept)\.v[1-9][0-9]*")


def misnamed(names: Iterable[str]) -> list[str]:
    return [name for name in names if not NAME.fullmatch(name)]


def test_topics_and_events_are_named_for_facts() -> None:
    assert misnamed(topic.name for topic in catalogue()) == []
    assert misnamed(EVENTS) == []


@pytest.mark.parametrize(
    "name",
    ["wallet.score.sign.v1", "wallet.score.signed", "wallet_score.score.signed.v1",
     "prod.wallet.score.signed.v1", "Wallet.score.signed.v1", "wallet.score.signed.v0"],
)  # fmt: skip
def test_the_name_rule_refuses(name: str) -> None:
    assert misnamed([name]) == [name]


def test_no_name_has_an_underscore() -> None:
    """`.` and `_` collide in Kafka's metric names."""
    assert [topic.name for topic in catalogue().everything() if "_" in topic.name] == []


def test_topics_and_events_are_the_same_list() -> None:
    """Each topic carries one event, each event has a topic of its own name."""
    own = {topic.name for topic in catalogue() if topic.event == topic.name}
    borrowed = {topic.name: topic.event for topic in catalogue() if topic.event != topic.name}
    assert own == set(EVENTS)
    assert borrowed == {"llm.generation.retried.v1": "llm.generation.requested.v1"}


def test_each_event_is_named_in_its_schema() -> None:
    for event in EVENTS:
        assert load_schema(event)["$id"] == f"urn:assay:event:{event}"


def test_all_topics_share_one_partition_count() -> None:
    """One wallet has one partition number everywhere."""
    assert len({topic.partitions for topic in catalogue().everything()}) == 1


def test_dead_letters_are_derived() -> None:
    """`<topic>.<service>.dlq` for each consumer, none for a sink, room for the added headers."""
    dead = {topic.name: topic for topic in catalogue().dead_letters()}
    assert set(dead) == {
        dead_letter_name(topic.name, service)
        for topic in catalogue()
        for service in topic.consumers
    }
    for name, letter in dead.items():
        topic, _, service = name.removesuffix(".dlq").rpartition(".")
        assert letter.producers == (service,)
        assert letter.record_bytes > catalogue()[topic].record_bytes
        assert letter.retention_ms >= catalogue()[topic].retention_ms
    with pytest.raises(ContractError, match="does not consume"):
        catalogue()["wallet.score.signed.v1"].dead_letter("evidence")


def test_retry_topics_are_derived() -> None:
    """`<topic>.<service>.retry.<tier>` for each consumer that postpones, kept by nobody."""
    tiers = catalogue().retries()
    assert [topic.name for topic in tiers] == [
        retry_name("wallet.event.submitted.v1", "ingest", tier) for tier in (1, 2, 3)
    ]
    for tier in tiers:
        assert origin_name(tier.name) == "wallet.event.submitted.v1"
        assert (tier.producers, tier.consumers, tier.sinks) == (("ingest",), ("ingest",), ())
        assert tier.record_bytes > catalogue()["wallet.event.submitted.v1"].record_bytes
    assert set(catalogue().on_broker()) == {*catalogue().everything(), *tiers}
    assert origin_name("wallet.event.submitted.v1.ingest.dlq").endswith(".dlq")
    assert parse_catalogue(TEXT.replace('retries = ["ingest"]', "")).retries() == ()


def test_only_known_services_take_part() -> None:
    for topic in catalogue():
        assert set(topic.producers) <= KNOWN | {"anyone"}, topic.name
        assert set(topic.consumers) | set(topic.sinks) <= KNOWN, topic.name
        assert topic.producers, topic.name
        assert not set(topic.consumers) & set(topic.sinks), topic.name


def test_evidence_keeps_everything() -> None:
    """Every topic and every dead letter has the evidence sink (DESIGN §1)."""
    assert [t.name for t in catalogue().everything() if "evidence" not in t.sinks] == []


def test_only_the_signer_writes_signed_scores() -> None:
    assert catalogue()["wallet.score.signed.v1"].producers == ("signer",)


def test_keys_are_of_the_two_kinds_and_events_can_give_them() -> None:
    for topic in catalogue():
        assert topic.key in ("wallet", "request"), topic.name
        model = EVENTS[topic.event]
        assert issubclass(model, InternalEvent) or "anyone" in topic.producers, topic.name


def test_a_record_grows_along_the_flow_and_still_fits() -> None:
    """What ingest accepts fits into what it publishes, the answer holds the request."""
    sizes = {topic.name: topic.max_bytes for topic in catalogue()}
    assert sizes["wallet.event.accepted.v1"] > sizes["wallet.event.submitted.v1"]
    assert sizes["llm.generation.answered.v1"] > sizes["llm.generation.requested.v1"]


def planted(old: str, new: str) -> str:
    assert old in TEXT, old
    return TEXT.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (planted('retention = "7d"', 'retntion = "7d"'), r"\[defaults\].*retntion"),
        (planted("partitions = 12", "enforced_partitions = 12"), r"\[defaults\].*enforced"),
        (planted("max_bytes = 4_194_304", "max_byte = 4_194_304"), "submitted.*max_byte'"),
        (planted("consumers = []", "consumer = []"), "unknown keys.*'consumer'"),
        (planted("consumers = []\n", ""), "missing keys.*consumers"),
        (planted("[defaults]", "[default]"), "unknown keys.*'default'"),
        (planted('planned = ["advisor"]', 'plannd = ["advisor"]'), "unknown keys.*plannd"),
        (planted('retention = "7d"', 'retention = "7 days"'), "7 days"),
        (planted('"wallet.event.accepted.v1"', '"wallet.event.submitted.v1"'), "twice"),
        (planted("headroom", "#headroom"), "missing keys.*headroom"),
        (TEXT + "\n[[topics]]\n", "unknown keys.*'topics'"),
        (planted('retries = ["ingest"]', 'retries = ["signer"]'), "retries of no consumer"),
    ],
    ids=lambda value: value if len(value) < 60 else "",
)
def test_a_slip_in_the_catalogue_is_refused(text: str, complaint: str) -> None:
    """The checker is checked: undeclared keys have passed other catalogues unseen."""
    tomllib.loads(text)
    with pytest.raises(ContractError, match=complaint):
        parse_catalogue(text)


def test_a_topic_may_have_its_own_retention_and_size() -> None:
    text = planted("max_bytes = 4_194_304", 'max_bytes = 10\nretention = "36h"')
    topic = parse_catalogue(text)["wallet.event.submitted.v1"]
    assert (topic.max_bytes, topic.record_bytes) == (10, 65_546)
    assert topic.retention_ms == 36 * 3_600_000


def test_an_unknown_topic_is_a_contract_error() -> None:
    with pytest.raises(ContractError, match="no topic named"):
        catalogue()["wallet.score.signd.v1"]
