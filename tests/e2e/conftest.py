"""Stacks for the end-to-end tests: every test runs on the embedded broker and on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.kafka import jars
from deploy.kafka.java import ensure_java
from deploy.owned_process import MissingTool
from tests.conftest import REQUIRED
from tests.e2e.outside import ScriptedAggregator, ScriptedModel
from tests.e2e.stacks import QUICK, StackProcess

TOKEN = "evidence-reader"


@pytest.fixture(
    scope="session", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)]
)
def broker(request: pytest.FixtureRequest) -> str:
    """What `assay up --broker` gets."""
    if request.param == "kafka":
        try:
            jars.fetch()
            ensure_java(jars.BUILD)
        except MissingTool as missing:
            if REQUIRED:
                pytest.fail(str(missing), pytrace=False)
            pytest.skip(str(missing))
    return str(request.param)


@pytest.fixture(scope="session")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as running:
        yield running


@pytest.fixture(scope="session")
def aggregator() -> Iterator[ScriptedAggregator]:
    with ScriptedAggregator() as running:
        yield running


@pytest.fixture(scope="session")
def stack(
    broker: str,
    model: ScriptedModel,
    aggregator: ScriptedAggregator,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[StackProcess]:
    """A stack with the usual settings, shared by all tests; each has wallets of its own."""
    folder = tmp_path_factory.mktemp(f"stack-{broker}")
    running = StackProcess(
        folder,
        ["--broker", broker, "--model", f"ollama:{model.name}@{model.url}",
         "--aggregator", aggregator.template],
        QUICK,
    )  # fmt: skip
    try:
        yield running.ready()
    finally:
        running.stop()


@pytest.fixture(scope="session")
def strict_stack(
    broker: str,
    model: ScriptedModel,
    aggregator: ScriptedAggregator,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[StackProcess]:
    """A stack that withholds rather than falls back, takes no inline data over HTTP, answers
    soon, takes little, and shows evidence for a token only."""
    folder = tmp_path_factory.mktemp(f"strict-{broker}")
    running = StackProcess(
        folder,
        ["--broker", broker, "--model", f"ollama:{model.name}@{model.url}",
         "--aggregator", aggregator.template],
        {
            **QUICK,
            "ASSAY_VALIDATOR__ON_ANSWERS_REJECTED": "withhold",
            "ASSAY_VALIDATOR__ON_PROVIDER_UNAVAILABLE": "withhold",
            "ASSAY_INGEST__INLINE_EVM_DATA": "false",
            "ASSAY_INGEST__REPLY_DEADLINE_S": "8",
            "ASSAY_INGEST__MAX_BODY_BYTES": "20000",
            "ASSAY_EVIDENCE__TOKEN": TOKEN,
        },
    )  # fmt: skip
    try:
        yield running.ready()
    finally:
        running.stop()
