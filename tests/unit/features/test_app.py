"""What features refuses to start with: a line that names the variable (SPEC S3.8, S4.9)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from assay.contracts import schema_root
from assay_runtime.settings import SettingsError
from services.features.app import build
from services.features.settings import FeaturesSection, FeaturesSettings

SHIPPED = schema_root() / "processes"


def said(**section: str) -> str:
    """What is said against these settings, "" where it is nothing."""
    try:
        build(FeaturesSettings(features=FeaturesSection.model_validate(section)))
    except SettingsError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("process", ["review_digest", "quiz_card"])
def test_a_process_that_makes_no_score_is_refused(process: str) -> None:
    """Every POST /score would stay pending: only a score is signed."""
    assert said() == ""
    assert said(process=process) == (
        f"ASSAY_FEATURES__PROCESS: {process!r} makes no score; its result is "
        "llm.generation.accepted.v1, not wallet.score.validated.v1"
    )


def test_any_process_of_scores_is_usable(tmp_path: Path) -> None:
    """Its name is the operator's choice; one that is not there is refused with those that are."""
    shutil.copytree(SHIPPED / "wallet_score", tmp_path / "ours")
    file = tmp_path / "ours" / "config.yaml"
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    config["assay"]["id"] = "ours"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    assert said(processes=str(tmp_path), process="ours") == ""
    missing = "ASSAY_FEATURES__PROCESS: no process 'wallet_score' among ['ours']"
    assert said(processes=str(tmp_path)) == missing


def test_a_folder_that_is_not_there_is_refused() -> None:
    """No traceback."""
    place = "ASSAY_FEATURES__PROCESSES: there is no folder '/nonexistent'"
    assert said(processes="/nonexistent") == place
