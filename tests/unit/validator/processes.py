"""Processes made for the tests of the validator."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from assay.contracts import schema_root
from assay_gate.process import Process, load_process
from tests.unit.validator.answers import answered

SCORE = answered().input


def own(
    folder: Path,
    steps: list[dict[str, Any]],
    /,
    *,
    validation: dict[str, Any] | None = None,
    protected: tuple[str, ...] = (),
    **ours: Any,
) -> Process:
    """A process of model steps without output schemas, and of expression steps."""
    names = [step["name"] for step in steps if "scope" not in step]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.jinja2").write_text("Say something.", encoding="utf-8")
    if protected:
        ours["input_schema"] = "in.json"
        properties: dict[str, Any] = {name: {} for name in protected}
        (folder / "in.json").write_text(json.dumps({"properties": properties}), encoding="utf-8")
    config = {
        "pipeline": {"steps": steps},
        "prompts": {"template_dir": ".", "templates": dict.fromkeys(names, "a.jinja2")},
        "schemas": {"files": dict.fromkeys(names)},
        "validation": {name: {} for name in names} | (validation or {}),
        "assay": {"version": "1", **ours},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return load_process(folder)


def shadow_score(root: Path) -> Process:
    """wallet_score as a shadow of itself; `root` then holds both."""
    for name in ("wallet_score", "wallet_score@next"):
        shutil.copytree(schema_root() / "processes" / "wallet_score", root / name)
    return as_shadow(root / "wallet_score@next")


def as_shadow(folder: Path, of: str = "wallet_score") -> Process:
    """The process of a folder named `id@version`, changed into a shadow for all keys."""
    file = folder / "config.yaml"
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    version = folder.name.partition("@")[2]
    config["assay"] |= {"version": version, "shadow": {"of": of, "share": 1.0}}
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return load_process(folder)
