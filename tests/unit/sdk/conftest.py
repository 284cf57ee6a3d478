"""An embedded broker with the catalogue's topics, for the client and the commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from assay.topics import catalogue
from deploy.dev.broker import EmbeddedBroker
from tests.unit.sdk.small_oracle import SmallOracle


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker([(topic.name, 2) for topic in catalogue().on_broker()]) as broker:
        yield broker


@pytest.fixture
def bootstrap(embedded: EmbeddedBroker) -> str:
    return embedded.bootstrap


@pytest.fixture
def oracle(bootstrap: str) -> Iterator[SmallOracle]:
    with SmallOracle(bootstrap) as running:
        yield running
