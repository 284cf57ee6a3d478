"""`assay.cache`: which processes let an accepted answer be served again (issue 5 row 2; S4.9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay_gate.process import ProcessError, load_process
from assay_gate.process_cache import Caching
from assay_gate.process_check import check_folder


def write(folder: Path, **ours: Any) -> Path:
    """A process of one question with these keys in its section `assay`."""
    settings = {
        "pipeline": {"steps": [{"name": "talk"}]},
        "prompts": {"template_dir": ".", "templates": {"talk": "talk.jinja2"}},
        "schemas": {"schema_dir": ".", "files": {"talk": None}},
        "validation": {"talk": {}},
        "api": {},
        "processing": {},
        "assay": {"input_schema": "in.json", "key": "word"} | ours,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    (folder / "talk.jinja2").write_text("Say {{ word }}.")
    schema = {"type": "object", "properties": {"word": {}}, "required": ["word"]}
    (folder / "in.json").write_text(json.dumps(schema))
    return folder


@pytest.mark.parametrize(
    ("given", "caching"),
    [
        ({}, None),
        ({"cache": None}, None),
        ({"cache": False}, None),
        ({"cache": True}, Caching()),
        ({"cache": {"max_age_s": 60}}, Caching(60.0)),
        ({"cache": {"max_age_s": 0.5}}, Caching(0.5)),
    ],
)
def test_a_process_says_whether_its_answers_may_be_served_again(
    tmp_path: Path, given: dict[str, Any], caching: Caching | None
) -> None:
    """Issue 5 row 2: off unless it is switched on."""
    write(tmp_path, **given)
    assert load_process(tmp_path).caching == caching
    assert check_folder(tmp_path).findings == []


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        ("yes", "assay.cache: must be true, false or {max_age_s: seconds}, not 'yes'"),
        (1, "assay.cache: must be true, false or {max_age_s: seconds}, not 1"),
        ({}, "assay.cache.max_age_s: must be a number of seconds above 0, not None"),
        ({"max_age_s": 0}, "assay.cache.max_age_s: must be a number of seconds above 0, not 0"),
        ({"max_age_s": True}, "assay.cache.max_age_s: must be a number"),
        ({"max_age_s": "60"}, "assay.cache.max_age_s: must be a number"),
        ({"max_age_s": float("inf")}, "assay.cache.max_age_s: must be a number"),
        ({"max_age_s": float("nan")}, "assay.cache.max_age_s: must be a number"),
        ({"max_age": 60}, "assay.cache.max_age: no such key; did you mean max_age_s?"),
    ],
)
def test_each_mistake_is_named(tmp_path: Path, cache: Any, message: str) -> None:
    """S4.9: by file, key and a hint; such a process does not load."""
    write(tmp_path, cache=cache)
    said = [str(finding) for finding in check_folder(tmp_path).mistakes]
    assert any(line.startswith(f"config.yaml: {message}") for line in said), said
    with pytest.raises(ProcessError, match=r"assay\.cache"):
        load_process(tmp_path)


def test_a_misspelt_key_is_recognised(tmp_path: Path) -> None:
    """S4.9: `cached` may have been meant as `cache`."""
    write(tmp_path, cached=True)
    [mistake] = check_folder(tmp_path).mistakes
    assert "did you mean cache?" in mistake.message


def test_a_cache_without_a_key_serves_nothing_and_says_so(tmp_path: Path) -> None:
    """S4.9: a warning, because every request then has its own seed; the process loads."""
    write(tmp_path, cache=True, key=None)
    checked = check_folder(tmp_path)
    assert not checked.mistakes
    [warning] = checked.warnings
    assert (warning.key, warning.message.partition(":")[0]) == (
        "assay.cache", "nothing will be served"
    )  # fmt: skip
