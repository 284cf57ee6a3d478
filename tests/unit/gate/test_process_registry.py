"""Versions of a process side by side, found by hash; shadows (DESIGN §2, §4; issue rows 1, 7)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.events import Meta
from assay_gate.chain import request_meta
from assay_gate.process import ProcessError, load_process, load_processes, load_registry


def write(root: Path, folder: str, text: str = "Say {{ word }}.", **ours: Any) -> Path:
    settings = {
        "pipeline": {"steps": [{"name": "a"}]},
        "prompts": {"template_dir": ".", "templates": {"a": "a.jinja2"}},
        "schemas": {"files": {"a": None}},
        "validation": {"a": {}},
    }
    if ours:
        settings["assay"] = ours
    path = root / folder
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(settings))
    (path / "a.jinja2").write_text(text)
    return path


def test_versions_stand_side_by_side_and_are_found_by_hash(tmp_path: Path) -> None:
    """DESIGN §2: the recorded hash judges an answer, not today's folder."""
    write(tmp_path, "talk", "Say {{ word }} again.", version="2")
    write(tmp_path, "talk@1", version="1")
    write(tmp_path, "other@7")
    (tmp_path / "README.md").write_text("no process")
    registry = load_registry(tmp_path)
    old, new = load_process(tmp_path / "talk@1"), load_process(tmp_path / "talk")
    assert (old.id, old.version) == ("talk", "1")
    found = registry.current("talk")
    assert found is not None
    assert (found.version, found.hash) == ("2", new.hash)
    kept = registry.by_hash(old.hash)
    assert kept is not None
    assert kept.version == "1"
    assert registry.by_hash("0" * 64) is None
    assert registry.current("nobody") is None
    assert {p.id: p.version for p in load_processes(tmp_path).values()} == {
        "talk": "2", "other": "7",
    }  # fmt: skip
    assert registry.versions == {
        ("talk", "1"): old.hash,
        ("talk", "2"): new.hash,
        ("other", "7"): load_process(tmp_path / "other@7").hash,
    }


def test_the_folder_and_the_configuration_agree_on_the_version(tmp_path: Path) -> None:
    """Issue row 1: `<id>@<version>` and assay.version cannot say different things."""
    folder = write(tmp_path, "talk@1", version="2")
    with pytest.raises(ProcessError, match=r"assay\.version: is 2, the folder says 1"):
        load_process(folder)


def test_one_folder_has_to_be_the_current_one(tmp_path: Path) -> None:
    """Issue row 1: never a guess which version answers."""
    write(tmp_path, "talk@1", "one", version="1")
    write(tmp_path, "talk@2", "two", version="2")
    with pytest.raises(ProcessError, match="exactly one folder must be without"):
        load_registry(tmp_path)


def test_the_same_version_twice_is_refused(tmp_path: Path) -> None:
    """Issue row 1: an id and version name one content, a hash one process."""
    write(tmp_path, "talk", "one", id="talk", version="1")
    write(tmp_path, "copy", "two", id="talk", version="1")
    with pytest.raises(ProcessError, match=r"assay\.version: copy is 'talk' 1 already"):
        load_registry(tmp_path)
    shutil.rmtree(tmp_path / "copy")
    shutil.copytree(tmp_path / "talk", tmp_path / "walk")
    with pytest.raises(ProcessError, match="already"):
        load_registry(tmp_path)


def test_a_used_version_is_immutable(tmp_path: Path) -> None:
    """Issue row 1: a changed folder with the same version is refused, a new version is not."""
    folder = write(tmp_path, "talk", version="1")
    used = load_registry(tmp_path).versions
    assert load_registry(tmp_path, used).current("talk") is not None
    (folder / "a.jinja2").write_text("Shout {{ word }}.")
    with pytest.raises(ProcessError, match="was used with other content"):
        load_registry(tmp_path, used)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["assay"]["version"] = "2"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert load_registry(tmp_path, used).versions.keys() == {("talk", "2")}


def shadowed(root: Path, share: float) -> None:
    write(root, "talk", version="1")
    shadow = {"of": "talk", "share": share}
    write(root, "talk@2", "Shout {{ word }}.", version="2", shadow=shadow)


def test_a_shadow_takes_its_share_of_the_keys_every_time(tmp_path: Path) -> None:
    """Issue row 7: by wallet, stable, whatever the case of its letters."""
    shadowed(tmp_path, 0.25)
    registry = load_registry(tmp_path)
    keys = [f"0x{n:040x}" for n in range(4000)]
    chosen = [key for key in keys if registry.shadows_for("talk", key)]
    assert 0.21 < len(chosen) / len(keys) < 0.29
    again = load_registry(tmp_path)
    assert [key for key in keys if again.shadows_for("talk", key.upper())] == chosen
    (shadow,) = registry.shadows_for("talk", chosen[0])
    assert shadow.version == "2"
    assert registry.shadows_for("other", chosen[0]) == []


def test_a_shadow_is_never_the_current_version(tmp_path: Path) -> None:
    """Issue row 7: it answers nobody; its hash is known, so that its answers are judged."""
    shadowed(tmp_path, 1)
    registry = load_registry(tmp_path)
    current = registry.current("talk")
    assert current is not None
    assert (current.version, current.shadow) == ("1", None)
    (shadow,) = registry.shadows_for("talk", "any")
    assert registry.by_hash(shadow.hash) is shadow
    write(tmp_path, "walk", "Walk.", version="1", shadow={"of": "talk", "share": 1})
    registry = load_registry(tmp_path)
    assert registry.current("walk") is None
    assert len(registry.shadows_for("talk", "any")) == 2


def test_a_request_to_a_shadow_is_marked(tmp_path: Path) -> None:
    """Issue row 7: the signer refuses what carries the mark; the current version's has none."""
    shadowed(tmp_path, 1)
    registry = load_registry(tmp_path)
    accepted = Meta(request_id="7b0cbd0e-7a31-5d0e-9f53-5c8e4b1f0a11", tenant_id="t", attempt=3)
    (shadow,) = registry.shadows_for("talk", "any")
    current = registry.current("talk")
    assert current is not None
    for process, marked in ((shadow, True), (current, False)):
        meta = request_meta(process, accepted)
        assert (meta.process_id, meta.process_hash) == (process.id, process.hash)
        assert (meta.process_version, meta.shadow) == (process.version, marked)
        assert (meta.unit_id, meta.attempt, meta.step) == (accepted.request_id, 1, None)


def test_a_shadow_needs_what_it_follows(tmp_path: Path) -> None:
    """S4.9: a shadow of nothing would silently never run."""
    write(tmp_path, "talk", version="1", shadow={"of": "tolk", "share": 0.5})
    with pytest.raises(ProcessError, match=r"assay\.shadow\.of: there is no process 'tolk'"):
        load_registry(tmp_path)


@pytest.mark.parametrize(
    ("shadow", "reason"),
    [
        ({"share": 0.1}, r"assay\.shadow\.of: missing"),
        ({"of": "talk", "share": 0}, r"assay\.shadow\.share"),
        ({"of": "talk", "share": 1.5}, r"assay\.shadow\.share"),
        ({"of": "talk"}, r"assay\.shadow\.share"),
        ({"of": "talk", "share": 0.1, "shard": 1}, r"assay\.shadow\.shard: .* did you mean share"),
        (0.1, r"assay\.shadow: must be a mapping"),
    ],
)
def test_a_wrong_shadow_is_named(tmp_path: Path, shadow: Any, reason: str) -> None:
    """S4.9: file, key and hint."""
    with pytest.raises(ProcessError, match=reason):
        load_process(write(tmp_path, "talk", shadow=shadow))


def test_a_root_names_the_folder_of_a_mistake(tmp_path: Path) -> None:
    """S4.9: which of the folders."""
    write(tmp_path, "talk", versoin="1")
    with pytest.raises(ProcessError, match=r"^talk/config\.yaml: assay\.versoin"):
        load_registry(tmp_path)
