"""The table of all settings: `python -m assay_runtime.settings_table services/*/settings.py`.

The runtime knows no service, so the modules are named on the command line.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from assay_runtime.settings import Settings

_PREAMBLE = """# Settings

Every service reads its settings from the environment, as `ASSAY_<SECTION>__<KEY>`. A key that does
not exist is refused at start, with the nearest one that does; sections of other services are
passed over, so that one ConfigMap may serve all. Any key may also be given as `<NAME>_FILE`, the
path of a file that holds the value, which is how secrets are mounted. Lists are written as JSON.
The `assay` command reads `ASSAY_KAFKA__BOOTSTRAP` too, where `--bootstrap` is not given.
"""


def settings_classes(names: Iterable[str]) -> list[type[Settings]]:
    """The Settings of each module, given as a dotted name or a path."""
    found: list[type[Settings]] = []
    for name in names:
        dotted = ".".join(PurePath(name).with_suffix("").parts) if "/" in name else name
        module = importlib.import_module(dotted)
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Settings) and value is not Settings
        ]
    return found


def settings_table(models: Iterable[type[Settings]]) -> str:
    """Markdown: the sections all services share, then each service's own."""
    sections: dict[str, FieldInfo] = {}
    classes: list[type[Settings]] = [Settings, *models]
    for model in classes:
        sections |= model.model_fields
    return _PREAMBLE + "".join(f"\n{part}" for name in sections for part in _section(
        name, sections[name].annotation, sections[name].default
    ))  # fmt: skip


def _section(name: str, model: Any, defaults: BaseModel) -> Iterator[str]:
    yield f"## {name}\n\n{_first_paragraph(model)}\n"
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for key, field in model.model_fields.items():
        variable = f"ASSAY_{name}__{key}".upper()
        meaning = " · ".join(part for part in (field.description or "", _limits(field)) if part)
        default = _default(getattr(defaults, key))
        rows.append(f"| `{variable}` | {default} | {meaning.replace('|', chr(92) + '|')} |")
    yield "\n".join(rows) + "\n"


def _first_paragraph(model: type) -> str:
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


def _default(value: Any) -> str:
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is None or value == "":
        return "unset"
    return f"`{value if isinstance(value, str) else json.dumps(value, default=str)}`"


def _limits(field: FieldInfo) -> str:
    """Choices and bounds, as far as the field declares them."""
    choices = getattr(field.annotation, "__args__", ())
    if choices and all(isinstance(choice, str) for choice in choices):
        return "one of " + ", ".join(f"`{choice}`" if choice else "unset" for choice in choices)
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    return ", ".join(
        f"{word} {getattr(bound, name)}"
        for bound in field.metadata
        for name, word in words.items()
        if getattr(bound, name, None) is not None
    )


if __name__ == "__main__":
    print(settings_table(settings_classes(sys.argv[1:])), end="")
