"""Settings: a clear error for unknown or bad keys (issue item 4)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from assay_runtime.settings import Section, Settings, SettingsError, load


class SignerSection(Section):
    key: str = "file:key"
    tags: list[str] = Field(default_factory=list)


class SignerSettings(Settings):
    signer: SignerSection = SignerSection()


def said(**environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(SignerSettings, environ)
    return str(caught.value)


def test_values_reach_their_sections() -> None:
    """Numbers, lists as JSON, own section; what is no setting of ours is passed over."""
    settings = load(
        SignerSettings,
        {
            "ASSAY_KAFKA__LINGER_MS": "7",
            "ASSAY_SIGNER__TAGS": '["a","b"]',
            "ASSAY_INGEST__ANYTHING": "another service's",
            "ASSAY_REQUIRE_SERVERS": "1",
            "PATH": "/bin",
        },
    )
    assert settings.kafka.linger_ms == 7
    assert settings.signer.tags == ["a", "b"]


def test_unknown_key_is_named_with_the_nearest() -> None:
    text = said(ASSAY_KAFKA__BOOSTRAP="x")
    assert text == "ASSAY_KAFKA__BOOSTRAP: no such setting; did you mean ASSAY_KAFKA__BOOTSTRAP?"


@pytest.mark.parametrize("name", ["ASSAY_KAFKA_BOOTSTRAP", "ASSAY_SIGNER_KEY", "ASSAY_KAFKA"])
def test_a_single_underscore_is_a_mistake(name: str) -> None:
    assert f"{name}: no such setting" in said(**{name: "x"})


def test_unknown_section_is_a_mistake() -> None:
    assert "ASSAY_KAFAK__BOOTSTRAP: no such setting" in said(ASSAY_KAFAK__BOOTSTRAP="x")


def test_bad_value_names_the_variable_and_not_the_value() -> None:
    """All problems at once; a value may be a secret put in the wrong place."""
    text = said(ASSAY_KAFKA__LINGER_MS="s3cret", ASSAY_HTTP__PORT="70000", ASSAY_LOG__LEVEL="x")
    assert [line.split(":")[0] for line in text.splitlines()] == [
        "ASSAY_KAFKA__LINGER_MS", "ASSAY_HTTP__PORT", "ASSAY_LOG__LEVEL"
    ]  # fmt: skip
    assert "s3cret" not in text


def test_secret_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("file:/k\n")
    settings = load(SignerSettings, {"ASSAY_SIGNER__KEY_FILE": str(tmp_path / "key")})
    assert settings.signer.key == "file:/k"


def test_secret_file_problems_name_the_variable(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    missing = said(ASSAY_SIGNER__KEY_FILE=str(tmp_path / "none"))
    assert missing.startswith("ASSAY_SIGNER__KEY_FILE: cannot read")
    assert "No such file" in missing
    assert "no UTF-8" in said(ASSAY_SIGNER__KEY_FILE=str(tmp_path / "binary"))


def test_a_value_given_twice_is_refused(tmp_path: Path) -> None:
    """Which of the two would win is nothing to guess about."""
    (tmp_path / "key").write_text("b")
    text = said(ASSAY_SIGNER__KEY="a", ASSAY_SIGNER__KEY_FILE=str(tmp_path / "key"))
    assert "ASSAY_SIGNER__KEY_FILE: set beside ASSAY_SIGNER__KEY" in text
