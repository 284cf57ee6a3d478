"""What was released stays as it was, and what is being worked on stays compatible with it
(DESIGN §2, issue item 1)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from assay import release
from assay.contracts import iter_examples, load_schema, schema_root
from assay.events import EVENTS
from assay.release import Minor, ReleaseError, released_minors

ROOT = schema_root()
MINORS = [minor for event in sorted(EVENTS) for minor in released_minors(ROOT, event)]
EVENT = "wallet.score.signed.v1"
NEXT_MINOR = released_minors(ROOT, EVENT)[-1].minor + 1


def label(minor: Minor) -> str:
    return f"{minor.event}-{minor.major}.{minor.minor}"


def fits(schema: dict[str, Any], value: bytes) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(value)))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The contracts as they stand, to be spoiled."""
    return shutil.copytree(ROOT, tmp_path / "schemas")


def edit_schema(root: Path, event: str, edit: Callable[[dict[str, Any]], Any]) -> None:
    path = root / "events" / f"{event}.schema.json"
    schema = json.loads(path.read_text())
    edit(schema)
    path.write_text(json.dumps(schema, indent=2))


def test_nothing_forbids_a_release() -> None:
    """No released file altered, no breaking edit, no process changed under its version."""
    assert release.problems(ROOT) == []


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_every_event_is_released_and_its_minors_have_no_gap(event: str) -> None:
    minors = released_minors(ROOT, event)
    major = int(event.rpartition(".v")[2])
    assert [(m.major, m.minor) for m in minors] == [(major, n) for n in range(len(minors))]
    assert minors
    assert all(minor.examples for minor in minors)


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_the_working_schema_is_the_last_minor(event: str) -> None:
    """Whoever changes a schema freezes it in the same change."""
    working = (ROOT / "events" / f"{event}.schema.json").read_bytes()
    assert released_minors(ROOT, event)[-1].text == working, "run python -m assay.release"


def test_nothing_released_is_orphaned() -> None:
    folders = {path.name for path in (ROOT / "released").iterdir() if path.is_dir()}
    assert folders == set(EVENTS) | {"processes"}


@pytest.mark.parametrize("minor", MINORS, ids=label)
def test_old_examples_are_valid_under_the_new_schema(minor: Minor) -> None:
    schema = load_schema(minor.event)
    for why, value in minor.examples:
        assert fits(schema, value), why
        EVENTS[minor.event].model_validate_json(value)


@pytest.mark.parametrize("minor", MINORS, ids=label)
def test_new_examples_are_valid_under_the_old_schema(minor: Minor) -> None:
    for example in iter_examples(minor.event):
        if example.valid:
            assert fits(minor.schema, example.value), example.why


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda f: f.write_bytes(f.read_bytes() + b" "), "was edited"),
        (lambda f: f.unlink(), "was removed"),
        (lambda f: f.with_name("1.9.json").write_text("{}"), "is not listed"),
    ],
    ids=["edited", "removed", "added"],
)
def test_a_silent_edit_of_a_released_file_is_found(
    copied: Path, damage: Callable[[Path], Any], complaint: str
) -> None:
    damage(copied / "released" / EVENT / "1.0.json")
    assert any(complaint in problem for problem in release.alterations(copied))
    with pytest.raises(ReleaseError, match=complaint):
        release.freeze(copied)


def test_a_silent_edit_of_a_frozen_example_is_found(copied: Path) -> None:
    example = next((copied / "released" / EVENT / "1.0.examples").iterdir())
    example.write_bytes(example.read_bytes().replace(b"745", b"746"))
    assert release.alterations(copied) == [
        f"{EVENT}/1.0.examples/{example.name}: was edited after its release"
    ]


def test_freezing_twice_changes_nothing(copied: Path) -> None:
    release.freeze(copied)
    before = (copied / "released" / "SHA256SUMS").read_bytes()
    assert release.freeze(copied) == []
    assert (copied / "released" / "SHA256SUMS").read_bytes() == before


def test_an_addition_becomes_the_next_minor(copied: Path) -> None:
    edit_schema(copied, EVENT, lambda s: s["properties"].update(note={"type": "string"}))
    frozen = release.freeze(copied)
    assert f"{EVENT}/1.{NEXT_MINOR}.json" in frozen
    assert f"{EVENT}/1.{NEXT_MINOR}.examples/signed.json" in frozen
    assert release.problems(copied) == []
    assert released_minors(copied, EVENT)[-1].schema["properties"]["note"] == {"type": "string"}


def test_a_breaking_edit_is_refused_with_place_and_reason(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_schema(copied, EVENT, lambda s: s["properties"]["score"].update(maximum=100))
    assert release.main([], copied) == 1
    assert f"{EVENT} 1.0: $.score: maximum was 1000, is 100" in capsys.readouterr().err
    assert not (copied / "released" / EVENT / f"1.{NEXT_MINOR}.json").exists()


def test_a_new_schema_must_suit_every_minor_of_its_major(copied: Path) -> None:
    edit_schema(copied, EVENT, lambda s: s["properties"].update(note={"type": "string"}))
    release.freeze(copied)
    edit_schema(copied, EVENT, lambda s: s["properties"].pop("note"))
    assert [m.minor for m, _ in release.event_breaks(copied, EVENT)] == [NEXT_MINOR]


def test_a_new_major_stands_beside_the_old(copied: Path) -> None:
    second = "wallet.score.signed.v2"
    schema = json.loads((copied / "events" / f"{EVENT}.schema.json").read_text())
    schema["properties"]["score"]["maximum"] = 100
    (copied / "events" / f"{second}.schema.json").write_text(json.dumps(schema))
    shutil.copytree(copied / "examples" / EVENT, copied / "examples" / second)
    assert f"{second}/2.0.json" in release.freeze(copied)


PROCESSES = sorted(path.parent.name for path in (ROOT / "processes").glob("*/config.yaml"))


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_has_one_version_in_all_its_files(process: str) -> None:
    """Closed contracts are versioned as a whole (DESIGN §2); the tool reads that version right."""
    folder = ROOT / "processes" / process
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    version = config.get("assay", {}).get("version")
    read = {name: number for name, number, _ in release._processes(ROOT) if name == process}
    assert read == ({process: version} if version and "@" not in process else {})
    for file in folder.glob("*.schema.json"):
        schema = json.loads(file.read_bytes())
        assert schema.get("version", version) == version, file.name


def test_the_score_is_released() -> None:
    """What the oracle is for is frozen as it stands, input and output (issue item 1)."""
    folder = ROOT / "processes" / "wallet_score"
    version = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))["assay"][
        "version"
    ]
    frozen = ROOT / "released" / "processes" / "wallet_score" / version
    names = {file.name for file in frozen.iterdir()}
    assert names == {"input.schema.json", "output.schema.json"}
    for name in names:
        assert (frozen / name).read_bytes() == (folder / name).read_bytes()
    output = json.loads((frozen / "output.schema.json").read_bytes())
    assert output["additionalProperties"] is False


def test_a_process_schema_changed_under_its_version_is_refused(copied: Path) -> None:
    file = copied / "processes" / "wallet_score" / "output.schema.json"
    file.write_bytes(file.read_bytes().replace(b'"maximum": 1000', b'"maximum": 999'))
    with pytest.raises(ReleaseError, match="give the process a new version"):
        release.freeze(copied)


def test_a_process_under_a_new_version_is_frozen_beside_the_old(copied: Path) -> None:
    folder = copied / "processes" / "wallet_score"
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes().replace(b"1.0.0", b"1.1.0"))
    frozen = release.freeze(copied)
    assert "processes/wallet_score/1.1.0/output.schema.json" in frozen
    assert (copied / "released/processes/wallet_score/1.0.0/output.schema.json").exists()


def test_an_earlier_version_kept_beside_the_present_one_stays_as_it_was(copied: Path) -> None:
    """The folder `<id>@<version>` judges answers that were asked for under it."""
    kept = shutil.copytree(
        copied / "processes" / "wallet_score", copied / "processes" / "wallet_score@1.0.0"
    )
    assert release.process_changes(copied) == []
    file = kept / "output.schema.json"
    file.write_bytes(file.read_bytes().replace(b'"maximum": 1000', b'"maximum": 999'))
    assert len(release.process_changes(copied)) == 1


def test_a_process_without_a_version_is_not_released(copied: Path) -> None:
    folder = copied / "processes" / "draft"
    folder.mkdir()
    (folder / "config.yaml").write_text("pipeline: {}\nassay:\n  id: draft\nversion: 1\n")
    (folder / "input.schema.json").write_text("{}")
    assert not any(name.startswith("processes/draft") for name in release.freeze(copied))
