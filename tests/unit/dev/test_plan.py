"""What `assay up` is asked for, and what each service is told (issue 3 item 7)."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from assay_runtime.settings import Settings, load
from deploy.dev.data_folder import claimed, private_folder
from deploy.dev.plan import (
    SERVICES,
    BrokerChoice,
    ModelChoice,
    PlanError,
    StackPlan,
    aggregator_of,
    without_effect,
)
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
    "text",
    ["", "ollama", "ollama:x", "ollama:@http://h", "ollama:x@h", "vllm:x@http://h",
     "ollama:x@http://", "ollama:x@http://h:99999", "ollama:x@http://h:0", "ollama:x@http://[h"],
)  # fmt: skip
def test_models_that_cannot_be_meant(text: str) -> None:
    """Issue 3 item 7."""
    with pytest.raises(PlanError, match="--model"):
        ModelChoice.parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "nowhere", "host:", ":9092", "host:port", "127.0.0.1:99999", "h:0", "h:-1", "h:+1",
     "h:9092.", "h:\u0661", " :9092", "a b:9092", "http://h:9092", "::1:9092", "[]:9092", "h..x:1",
     "-h:1", f"{'h' * 64}:1", f"{'h.' * 130}:1", "h:1,", "h:1,h", "h:1,:2"],
)  # fmt: skip
def test_brokers_that_cannot_be_meant(text: str) -> None:
    """Issue 3 item 7."""
    with pytest.raises(PlanError, match="--broker"):
        BrokerChoice.parse(text)


@pytest.mark.parametrize(
    "text", ["h:1", "127.0.0.1:65535", "kafka-0.kafka.svc.:9092", "[::1]:9092", "a:1,b_c:2"]
)
def test_addresses_of_brokers(text: str) -> None:
    """Issue 3 item 7: as ASSAY_KAFKA__BOOTSTRAP takes them."""
    assert BrokerChoice.parse(text) == BrokerChoice("external", text)


@pytest.mark.parametrize("text", ["h", "ftp://h/{address}", "http:///{address}", "http://h/x"])
def test_aggregators_that_cannot_be_meant(text: str) -> None:
    """Issue 3 item 7."""
    with pytest.raises(PlanError, match="--aggregator"):
        aggregator_of(text)
    assert aggregator_of("https://h/{address}") == "https://h/{address}"
    assert aggregator_of(None) is aggregator_of("") is None


def _made(environ: Mapping[str, str], broker: str = "embedded") -> dict[str, dict[str, str]]:
    return {
        service: _plan(broker).environment(
            service, bootstrap="b:1", model_url="http://m", aggregator_url="http://a/{address}",
            log="", environ=environ,
        )
        for service in SERVICES
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("ASSAY_KAFKA__OVERRUN", "stop", "continue"),
        ("ASSAY_KAFKA__FETCH_WAIT_MS", "77", "10"),
        ("ASSAY_KAFKA__SEND_DEADLINE_S", "77", "86400"),
        ("ASSAY_KAFKA__BUSY_STALL_S", "77", "86400"),
        ("ASSAY_SIGNER__NETWORK", "testnet", "dev"),
    ],
)
def test_a_default_of_the_stack_gives_way(
    tmp_path: Path, name: str, value: str, default: str
) -> None:
    """SETTINGS: what the environment says counts, as a value or as a file."""
    assert _made({})["signer"][name] == default
    file = tmp_path / "value"
    file.write_text(value, encoding="utf-8")
    for given in ({name: value}, {f"{name}_FILE": str(file)}):
        made = _made(given)
        assert not any(name in settings for settings in made.values())
        assert without_effect(made.values(), given) == []
        settings = load(SignerSettings, {**made["signer"], **given})
        section, key = name.removeprefix("ASSAY_").lower().split("__")
        assert str(getattr(getattr(settings, section), key)).split(".")[0] == value


def test_what_holds_the_stack_together_is_not_the_environments() -> None:
    """One broker, one data folder, the options of `assay up`: said where it is given otherwise."""
    given = {
        "ASSAY_KAFKA__BOOTSTRAP": "b:1",
        "ASSAY_HTTP__PORT": "9000",
        "ASSAY_SIGNER__LEDGER_FILE": "/x",
        "ASSAY_SCORER__MODEL": "other",
        "ASSAY_SCORER__SLOTS": "9",
    }
    made = _made(given)
    assert without_effect(made.values(), given) == [
        "ASSAY_HTTP__PORT", "ASSAY_SCORER__MODEL", "ASSAY_SIGNER__LEDGER",
    ]  # fmt: skip
    assert {settings["ASSAY_KAFKA__BOOTSTRAP"] for settings in made.values()} == {"b:1"}
    assert made["scorer"]["ASSAY_SCORER__MODEL"] == "simulator"
    assert made["scorer"]["ASSAY_HTTP__PORT"] == "0"


def test_the_log_of_a_broker_that_stays_may_be_named() -> None:
    """SETTINGS: ASSAY_KAFKA__LOG; an embedded one's name is the stack's."""
    assert "ASSAY_KAFKA__LOG" not in _made({}, "h:1")["signer"]


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


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277])
def test_a_folder_is_its_owners_alone(tmp_path: Path, mask: int) -> None:
    """DESIGN §7: prompts and answers lie in it. One that was there keeps the mode it was given."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o755)
    before = os.umask(mask)
    try:
        with claimed(tmp_path / "ours"), claimed(theirs):
            private_folder(tmp_path / "ours" / "run")
    finally:
        os.umask(before)
    modes = [_mode(tmp_path / name) for name in ("ours", "ours/run", "theirs")]
    assert modes == [0o700, 0o700, 0o755]
    (tmp_path / "ours" / "run").chmod(0o755)
    private_folder(tmp_path / "ours" / "run")
    assert _mode(tmp_path / "ours" / "run") == 0o700


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    """Issue 3: one line for a person."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ServerError, match="cannot be used"), claimed(file / "data"):
        pass
