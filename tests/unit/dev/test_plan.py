"""What `assay up` is asked for, and what each service is told (issue 3 item 7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_runtime.settings import Settings, load
from deploy.dev.data_folder import claimed
from deploy.dev.plan import SERVICES, BrokerChoice, ModelChoice, PlanError, StackPlan
from deploy.owned_process import ServerError
from services.evidence.settings import EvidenceSettings
from services.features.settings import FeaturesSettings
from services.ingest.settings import IngestSettings
from services.scorer.settings import ScorerSettings
from services.signer.settings import SignerSettings
from services.validator.settings import ValidatorSettings

SETTINGS: dict[str, type[Settings]] = {
    "ingest": IngestSettings, "features": FeaturesSettings, "scorer": ScorerSettings,
    "validator": ValidatorSettings, "signer": SignerSettings, "evidence": EvidenceSettings,
}  # fmt: skip


def _plan(broker: str = "embedded", model: str = "simulator") -> StackPlan:
    return StackPlan(BrokerChoice.parse(broker), ModelChoice.parse(model), Path("/data"), kept=True)


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("broker", ["embedded", "kafka", "10.0.0.1:9092"])
def test_every_service_takes_the_settings_it_is_given(service: str, broker: str) -> None:
    """Issue 3 item 4: none is unknown or bad; the broker's address is the same for all."""
    environment = _plan(broker).environment(
        service, bootstrap="b:1", model_url="http://m", aggregator_url="http://a/{address}",
        log="l",
    )  # fmt: skip
    settings = load(SETTINGS[service], environment)
    assert (settings.kafka.bootstrap, settings.kafka.log) == ("b:1", "l")


def test_model_names_may_hold_colons() -> None:
    """Ollama's names have a tag; the URL comes behind the last part."""
    choice = ModelChoice.parse("ollama:llama3.1:8b@http://h:11434")
    assert (choice.kind, choice.name, choice.url) == ("ollama", "llama3.1:8b", "http://h:11434")
    assert ModelChoice.parse("openai:a/b@https://x/v1").kind == "openai"


@pytest.mark.parametrize(
    "text", ["", "ollama", "ollama:x", "ollama:@http://h", "ollama:x@h", "vllm:x@http://h"]
)
def test_models_that_cannot_be_meant(text: str) -> None:
    """Issue 3 item 7."""
    with pytest.raises(PlanError, match="--model"):
        ModelChoice.parse(text)


@pytest.mark.parametrize("text", ["", "nowhere", "host:", ":9092", "host:port"])
def test_brokers_that_cannot_be_meant(text: str) -> None:
    """Issue 3 item 7."""
    with pytest.raises(PlanError, match="--broker"):
        BrokerChoice.parse(text)


def test_an_embedded_log_has_a_name_of_its_own_each_time() -> None:
    """DESIGN §8: its offsets start anew; those of a real broker go on."""
    plan = _plan()
    assert plan.log_name() != plan.log_name()
    assert _plan("kafka").log_name() == _plan("h:1").log_name() == ""


def test_one_stack_at_a_time_in_a_folder(tmp_path: Path) -> None:
    """Two would share stores and overwrite each other's records of processes."""
    folder = tmp_path / "new" / "data"
    with claimed(folder):
        assert folder.is_dir()
        with pytest.raises(ServerError, match="another stack"), claimed(folder):
            pass
    with claimed(folder):
        pass


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    """Issue 3: one line for a person."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ServerError, match="cannot be used"), claimed(file / "data"):
        pass
