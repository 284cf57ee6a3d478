"""compose.yaml stands for the same broker as the one that is tested here (issue item 6)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from deploy.kafka import server_properties
from deploy.kafka.jars import POM, kafka_version


@pytest.fixture
def compose() -> dict[str, Any]:
    return yaml.safe_load(POM.with_name("compose.yaml").read_text(encoding="utf-8"))


def test_same_kafka_version(compose: dict[str, Any]) -> None:
    """The image and the jars are one release."""
    assert compose["services"]["kafka"]["image"] == f"apache/kafka:{kafka_version()}"


def test_same_settings(compose: dict[str, Any]) -> None:
    """Every setting is there, and the others only say where the node runs."""
    # The image reads KAFKA_SOME_SETTING as some.setting.
    given = {
        name.removeprefix("KAFKA_").replace("_", ".").lower(): value
        for name, value in compose["services"]["kafka"]["environment"].items()
    }
    where = {"listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs"}
    assert {key: value for key, value in given.items() if key not in where} == dict(
        server_properties.SETTINGS
    )
    assert where <= given.keys()


def test_listens_on_this_machine_only(compose: dict[str, Any]) -> None:
    """Development servers without passwords worth the name are not offered to a network."""
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert service["healthcheck"]["test"]
