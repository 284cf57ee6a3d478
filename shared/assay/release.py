"""Freezes contracts: `python -m assay.release`, or with `--check` only says what is wrong.

```
released/SHA256SUMS                      digest of every file below, as sha256sum prints them
released/<event>/<major>.<minor>.json    the event's schema, byte for byte
released/<event>/<major>.<minor>.examples/<why>.json
released/processes/<id>/<version>/*.schema.json
```

An event's schema may grow by minors that are compatible with every minor of its major; anything
else is a new event, `.v2` beside `.v1`. A process's schemas are closed and versioned as a whole.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.compatibility import Break, breaks_between
from assay.contracts import schema_root
from assay.errors import ContractError

SUMS = "SHA256SUMS"
# `version` in the section `assay`; the SDK carries no YAML parser for one line.
_PROCESS_VERSION = re.compile(
    r"""^assay:\n(?:[ #].*\n|\n)*?  version: *["']?([\w.]+)""", re.MULTILINE
)


class ReleaseError(ContractError):
    """A contract must not be released as it stands; one reason a line."""


@dataclass(frozen=True, slots=True)
class Minor:
    """One released version of an event; examples are (why, bytes) of valid values."""

    event: str
    major: int
    minor: int
    text: bytes
    examples: tuple[tuple[str, bytes], ...]

    @property
    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = json.loads(self.text)
        return schema


def released_minors(root: Path, event: str) -> list[Minor]:
    """The released minors of an event, oldest first."""
    found = []
    for file in (root / "released" / event).glob("*.json"):
        major, minor = map(int, file.stem.split("."))
        examples = sorted(file.with_suffix(".examples").glob("*.json"))
        values = tuple((example.stem, example.read_bytes()) for example in examples)
        found.append(Minor(event, major, minor, file.read_bytes(), values))
    return sorted(found, key=lambda m: (m.major, m.minor))


def alterations(root: Path) -> list[str]:
    """Released files that were edited, removed or added by hand."""
    folder = root / "released"
    listed = _listed(folder)
    present = {name: hashlib.sha256(data).hexdigest() for name, data in _files(folder)}
    found = []
    for name in sorted(listed.keys() | present.keys()):
        if name not in present:
            found.append(f"{name}: was removed after its release")
        elif name not in listed:
            found.append(f"{name}: is not listed in {SUMS}")
        elif listed[name] != present[name]:
            found.append(f"{name}: was edited after its release")
    return found


def event_breaks(root: Path, event: str) -> list[tuple[Minor, Break]]:
    """Breaking edits of the working schema against every released minor of its major."""
    working = json.loads(_working(root, event))
    return [
        (minor, found)
        for minor in released_minors(root, event)
        for found in breaks_between(minor.schema, working)
    ]


def process_changes(root: Path) -> list[str]:
    """Process schemas that differ from those released under the same version."""
    problems = []
    for process, version, files in _processes(root):
        for name, data in files:
            released = root / "released" / "processes" / process / version / name
            if released.exists() and released.read_bytes() != data:
                problems.append(
                    f"processes/{process}/{name}: differs from the released {version}; "
                    "give the process a new version"
                )
    return problems


def problems(root: Path) -> list[str]:
    """Everything that forbids a release."""
    found = alterations(root) + process_changes(root)
    for event in _events(root):
        found += [
            f"{event} {minor.major}.{minor.minor}: {broken}"
            for minor, broken in event_breaks(root, event)
        ]
    return found


def freeze(root: Path) -> list[str]:
    """Release what changed; the new files' names. ReleaseError where anything forbids it."""
    if found := problems(root):
        raise ReleaseError("\n".join(found))
    folder = root / "released"
    new: dict[str, bytes] = {}
    for event in _events(root):
        text = _working(root, event)
        minors = released_minors(root, event)
        if minors and minors[-1].text == text:
            continue
        version = f"{event.rpartition('.v')[2]}.{minors[-1].minor + 1 if minors else 0}"
        new[f"{event}/{version}.json"] = text
        for example in sorted((root / "examples" / event / "valid").glob("*.json")):
            new[f"{event}/{version}.examples/{example.name}"] = example.read_bytes()
    for process, version, files in _processes(root):
        for name, data in files:
            target = f"processes/{process}/{version}/{name}"
            if not (folder / target).exists():
                new[target] = data
    for name, data in new.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    sums = {**_listed(folder), **{n: hashlib.sha256(d).hexdigest() for n, d in new.items()}}
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))
    (folder / SUMS).write_text(lines, encoding="utf-8")
    return sorted(new)


def _events(root: Path) -> list[str]:
    return sorted(f.name.removesuffix(".schema.json") for f in (root / "events").iterdir())


def _working(root: Path, event: str) -> bytes:
    return (root / "events" / f"{event}.schema.json").read_bytes()


def _processes(root: Path) -> Iterator[tuple[str, str, list[tuple[str, bytes]]]]:
    """(id, version, schema files) of every process whose config.yaml gives it a version."""
    for config in sorted((root / "processes").glob("*/config.yaml")):
        if version := _PROCESS_VERSION.search(config.read_text(encoding="utf-8")):
            files = [(f.name, f.read_bytes()) for f in sorted(config.parent.glob("*.schema.json"))]
            # `<id>@<version>` is an earlier version, kept beside the present one.
            yield config.parent.name.partition("@")[0], version[1], files


def _listed(folder: Path) -> dict[str, str]:
    if not (folder / SUMS).exists():
        return {}
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for file in folder.rglob("*"):
        if file.is_file() and file.name != SUMS:
            yield file.relative_to(folder).as_posix(), file.read_bytes()


def main(arguments: list[str] | None = None, root: Path | None = None) -> int:
    """Exit codes: 0 done or nothing to do, 1 refused, with one reason a line."""
    parser = argparse.ArgumentParser(prog="python -m assay.release")
    parser.add_argument("--check", action="store_true", help="change nothing")
    root = schema_root() if root is None else root
    try:
        if parser.parse_args(arguments).check:
            if found := problems(root):
                raise ReleaseError("\n".join(found))
            return 0
        for name in freeze(root):
            print(name)
    except ReleaseError as error:
        print(f"refused:\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
