"""A stack's seal key: made once, its owner's alone, kept with the data (ARCHITECTURE, 20)."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from assay_runtime.seals import Seals, SealsSection
from assay_runtime.settings import Settings, load
from deploy.dev.seal_key import ensure_seal_key


class SealedSettings(Settings):
    seals: SealsSection = SealsSection()


def test_a_second_start_has_the_same_key(tmp_path: Path) -> None:
    """Decision 20: what the first sealed and did not finish is still the services' own."""
    settings = ensure_seal_key(tmp_path, {})
    assert Seals.of(load(SealedSettings, settings).seals)
    [file] = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = file.read_text(encoding="utf-8")
    assert ensure_seal_key(tmp_path, {}) == settings
    assert file.read_text(encoding="utf-8") == key
    (tmp_path / "other").mkdir()
    ensure_seal_key(tmp_path / "other", {})
    assert (tmp_path / "other" / file.name).read_text(encoding="utf-8") != key


@pytest.mark.parametrize("name", ["ASSAY_SEALS__KEYS", "ASSAY_SEALS__KEYS_FILE"])
def test_keys_of_the_environment_are_the_stacks(tmp_path: Path, name: str) -> None:
    """Two settings of one key would be refused; stacks that share a broker share keys so."""
    assert ensure_seal_key(tmp_path, {name: "x"}) == {}
    assert list(tmp_path.iterdir()) == []
