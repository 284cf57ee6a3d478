"""What the validator refuses to start with: a line that names the variable (SPEC S4.9)."""

from __future__ import annotations

import pytest

from assay_runtime.settings import SettingsError
from services.validator.app import build
from services.validator.settings import ValidatorSection, ValidatorSettings


def test_a_folder_that_is_not_there_is_refused() -> None:
    """No traceback."""
    with pytest.raises(SettingsError) as refused:
        build(ValidatorSettings(validator=ValidatorSection(processes="/nonexistent")))
    said = "ASSAY_VALIDATOR__PROCESSES: there is no folder '/nonexistent'"
    assert str(refused.value) == said
