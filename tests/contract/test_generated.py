"""What is generated from the contracts is committed fresh (DESIGN §1): the AsyncAPI document, the
README's flow, the table of settings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faststream.specification.asyncapi.v3_0_0.schema import ApplicationSchema

from assay.asyncapi import asyncapi, document_text
from assay.contracts import schema_root
from assay.events import EVENTS
from assay.flow_diagram import flow_diagram
from assay.topics import catalogue
from assay_runtime.settings import Settings
from assay_runtime.settings_table import settings_classes, settings_table

REPO = Path(__file__).parents[2]
DOCUMENT = json.loads((schema_root() / "asyncapi.json").read_text(encoding="utf-8"))
SETTINGS_MODULES = sorted(str(p.relative_to(REPO)) for p in REPO.glob("services/*/settings.py"))
FLOW_BLOCK = re.compile(r"<!-- flow -->\n```\w*\n(.*?)```\n<!-- /flow -->", re.DOTALL)


def readme_flow(text: str) -> str | None:
    """The diagram between the README's markers, None where there are no markers."""
    if "<!-- flow -->" not in text:
        return None
    block = FLOW_BLOCK.search(text)
    return block[1] if block else ""


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (v for k, v in value.items() if k == "$ref")
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_asyncapi_is_fresh() -> None:
    committed = (schema_root() / "asyncapi.json").read_text(encoding="utf-8")
    assert committed == document_text(catalogue()), "run python -m assay.asyncapi"


def test_asyncapi_is_a_3_0_document_for_another_reader() -> None:
    parsed = ApplicationSchema.model_validate(DOCUMENT)
    assert parsed.asyncapi == "3.0.0"
    assert len(parsed.channels) == len(catalogue().on_broker())


def test_asyncapi_names_every_topic_and_event() -> None:
    """Dead letters too, since subscribers may want them."""
    assert set(DOCUMENT["channels"]) == {topic.name for topic in catalogue().on_broker()}
    assert set(DOCUMENT["components"]["messages"]) == {
        *EVENTS,
        "dead-letter",
        "postponed",
    }
    for topic in catalogue().on_broker():
        channel = DOCUMENT["channels"][topic.name]
        assert channel["bindings"]["kafka"]["partitions"] == topic.partitions
        assert channel["bindings"]["kafka"]["topicConfiguration"]["max.message.bytes"] == (
            topic.record_bytes
        )


def test_asyncapi_has_an_operation_per_edge_of_the_catalogue() -> None:
    edges = sum(
        len(topic.producers) + len(topic.consumers) + len(topic.sinks)
        for topic in catalogue().on_broker()
    )
    operations = DOCUMENT["operations"]
    assert len(operations) == edges
    assert operations["signer.writes.wallet.score.signed.v1"]["action"] == "send"
    assert operations["scorer.handles.llm.generation.retried.v1"]["action"] == "receive"


def test_every_reference_of_asyncapi_leads_somewhere() -> None:
    found = sorted(set(references(DOCUMENT)))
    assert len(found) > 2 * len(EVENTS)
    for reference in found:
        if reference.startswith("./"):
            assert (schema_root() / reference).is_file(), reference
            continue
        target = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]


def test_asyncapi_follows_the_catalogue() -> None:
    """Fresh means made from topics.toml: another producer is another document."""
    flow = catalogue()
    fewer = type(flow)(flow.topics[:-1], flow.planned, flow.dlq_retention_ms)
    assert asyncapi(fewer) != asyncapi(flow)


def test_the_diagram_shows_every_topic_and_service() -> None:
    diagram = flow_diagram(catalogue())
    for topic in catalogue():
        assert f"─► {topic.name}\n" in diagram
        for service in topic.consumers:
            assert re.search(rf"── {service}( \(|\n)", diagram), service
    assert "advisor (planned)" in diagram
    assert "evidence keeps every topic and every dead letter" in diagram


def test_the_readme_shows_the_diagram() -> None:
    """Where the README has the markers; without them it draws the flow by hand."""
    shown = readme_flow((REPO / "README.md").read_text(encoding="utf-8"))
    assert shown is None or shown == flow_diagram(catalogue()), "run python -m assay.flow_diagram"


def test_a_stale_readme_is_found() -> None:
    diagram = flow_diagram(catalogue())
    fresh = f"# X\n<!-- flow -->\n```text\n{diagram}```\n<!-- /flow -->\n"
    assert readme_flow(fresh) == diagram
    assert readme_flow(fresh.replace("signer", "stamper")) != diagram
    assert readme_flow(fresh.replace("<!-- /flow -->", "")) == ""
    assert readme_flow("# X\n") is None


def test_the_settings_table_is_fresh() -> None:
    committed = (REPO / "SETTINGS.md").read_text(encoding="utf-8")
    assert committed == settings_table(settings_classes(SETTINGS_MODULES)), (
        "run python -m assay_runtime.settings_table services/*/settings.py > SETTINGS.md"
    )


def test_the_settings_table_lists_every_setting_of_every_service() -> None:
    table = (REPO / "SETTINGS.md").read_text(encoding="utf-8")
    models = settings_classes(SETTINGS_MODULES)
    assert len(models) == len(SETTINGS_MODULES)
    for model in models:
        for section, field in model.model_fields.items():
            for key in field.annotation.model_fields:  # type: ignore[union-attr]
                assert f"| `ASSAY_{section}__{key}`".upper() in table


def test_the_settings_command_prints_the_table() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "assay_runtime.settings_table", *SETTINGS_MODULES],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == (REPO / "SETTINGS.md").read_text(encoding="utf-8")


def test_a_secret_default_is_not_shown_as_an_object() -> None:
    assert "SecretStr" not in settings_table([Settings, *settings_classes(SETTINGS_MODULES)])


@pytest.mark.parametrize("module", ["services.signer.settings", "services/signer/settings.py"])
def test_settings_modules_are_named_by_dots_or_path(module: str) -> None:
    assert [model.__name__ for model in settings_classes([module])] == ["SignerSettings"]
