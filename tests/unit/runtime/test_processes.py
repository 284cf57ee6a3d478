"""Where a service finds its processes, and what it says where there are none (SPEC S4.9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_runtime.processes import read_registry
from assay_runtime.settings import SettingsError

VARIABLE = "ASSAY_VALIDATOR__PROCESSES"


def test_the_folder_is_the_one_set_or_the_one_shipped(tmp_path: Path) -> None:
    """An empty setting means the processes that ship with the contracts."""
    assert "wallet_score" in read_registry("", VARIABLE).by_id
    assert not list(read_registry(str(tmp_path), VARIABLE))


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_no_folder_is_a_mistake_in_the_settings(tmp_path: Path, name: str) -> None:
    """One line that names variable and folder, and no traceback."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    place = str(tmp_path / name)
    with pytest.raises(SettingsError) as refused:
        read_registry(place, VARIABLE)
    assert str(refused.value) == f"{VARIABLE}: there is no folder {place!r}"


def test_a_mistake_in_a_process_is_one_in_the_settings(tmp_path: Path) -> None:
    """One line that names variable, file and key."""
    (tmp_path / "talk").mkdir()
    (tmp_path / "talk" / "config.yaml").write_text("pipeline: {}", encoding="utf-8")
    with pytest.raises(SettingsError) as refused:
        read_registry(str(tmp_path), VARIABLE)
    said = str(refused.value)
    assert said.startswith(f"{VARIABLE}: talk/config.yaml: ")
    assert "\n" not in said
